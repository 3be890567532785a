"""Writes the fixes that were faster as a patch, after it was applied to a copy and measured there."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from traceadvisor.errors import TraceAdvisorError, UsageError, named
from traceadvisor.experiments.journal import AnyRow
from traceadvisor.experiments.next_experiment import CODE
from traceadvisor.experiments.patching.copies import Copy, RefusedPatchError, TemporaryFolder, base_of, check_git, made
from traceadvisor.experiments.patching.diff import diff_of
from traceadvisor.experiments.patching.judged import code_arm, losses_of, outcome_of
from traceadvisor.experiments.patching.winners import Written, is_shown_by_cpu, predicted, winners, written
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN, Plan
from traceadvisor.experiments.result import Surroundings, result_of
from traceadvisor.experiments.run import Outcome, Watch, measure
from traceadvisor.experiments.settings import PATCH, Settings
from traceadvisor.model.experiment import ExperimentResult, LedgerRow
from traceadvisor.model.patch import SCHEMA, CodeChange, PatchOutcome
from traceadvisor.model.report import Report
from traceadvisor.rendering.content.code_change import header
from traceadvisor.rendering.formats import write_file
from traceadvisor.text.cleaning import clean, one_line

WRITTEN = frozenset({PatchOutcome.FASTER, PatchOutcome.NOT_SHOWN})
"""Outcomes with which a patch is written."""

_COPY_FOLDER = "in-copies"


def check_output(path: Path) -> None:
    """Raise UsageError if no patch can be written there, or something else would be lost."""
    if importlib.util.find_spec("libcst") is None:
        raise UsageError("--patch needs libcst: pip install 'traceadvisor[patch]'.")
    check_git()
    if path.parent.exists() and not path.parent.is_dir():
        raise UsageError(f"{clean(str(path.parent))} is a file, not a folder.")
    if os.path.lexists(path) and not _is_own(path):
        raise UsageError(f"{clean(str(path))} exists and is no patch of TraceAdvisor. Choose another file.")


def _is_own(path: Path) -> bool:
    first = f"# {SCHEMA}\n".encode()
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(len(first)) == first
    except OSError:
        return False


def script_file(plan: Plan) -> Path:
    """The file of the script or module.

    Raises:
        UsageError: there is none below the working directory.
    """
    name = plan.script[0]
    parts = Path(*name.split(".")) if plan.is_module else Path(name)
    places = [parts.with_suffix(".py"), parts / "__main__.py"] if plan.is_module else [parts, parts / "__main__.py"]
    found = next((one for one in places if os.path.isfile(one)), None)  # noqa: PTH113  # a name may be too long
    if found is None:
        raise UsageError(f"{clean(name)} has no Python file here, so that nothing can be changed in it.")
    return found.resolve()


def two_copies(folder: Path, files: Sequence[Path]) -> tuple[Copy, Copy]:
    """Two copies of all that the script sees, in which these files are real."""
    own, changed = (made(folder / name, files, Path.cwd()) for name in ("as-it-is", "changed"))
    return own, changed


def measured_in(
    copies: tuple[Copy, Copy], plan: Plan, patch: str, files: Sequence[Path], watch: Watch
) -> tuple[Outcome, ExperimentResult]:
    """The script as it is, and with changed files, in processes of their own that alternate."""
    own, changed = (str(one.folder) for one in copies)
    folder = Path(plan.folder, _COPY_FOLDER)
    folder.mkdir()
    plan = replace(
        plan,
        folder=str(folder),
        copies={AS_IT_IS: own, SAME_AGAIN: own, Settings.of({PATCH: patch}).words(): changed},
        changed=tuple(map(str, files)),
        changes=(),
        code={},
        separate_processes=True,
    )
    outcome = measure(plan, watch)
    return outcome, result_of(plan, outcome, Surroundings("try"))


class PatchWriter:
    """Makes and measures the patch of ``try --patch``, after the settings were measured."""

    def __init__(self, path: Path, report: Report, plan: Plan) -> None:
        """Raises UsageError if no patch can be written there, or the script has no file."""
        check_output(path)
        self._script = script_file(plan)
        self._path, self._report = path.absolute(), report
        self._name = one_line(clean(path.name))

    def __call__(self, plan: Plan, result: ExperimentResult, rows: Sequence[AnyRow], watch: Watch) -> ExperimentResult:
        """The result with what was measured of the patch."""
        del rows
        chosen = winners(result)
        if not chosen:
            return replace(result, code=CodeChange(outcome=PatchOutcome.NO_WINNER))
        script = self._script
        found = written(chosen, self._report, script, result.optimizer)
        if not found.files:
            change = CodeChange(outcome=PatchOutcome.NOTHING_TO_WRITE, left_out=found.left_out)
            return replace(result, code=change)
        made = [row for row in chosen if row.fix in found.made]
        try:
            return self._proved(plan, result, made, found, script, watch)
        except (TraceAdvisorError, OSError) as error:  # what was measured before is worth a result
            change = CodeChange(outcome=PatchOutcome.NOT_RUN, left_out=found.left_out, problem=f"{named(error)}.")
            return replace(result, code=change)

    def _proved(  # noqa: PLR0913, PLR0917  # it connects the parts
        self,
        plan: Plan,
        result: ExperimentResult,
        chosen: Sequence[LedgerRow],
        found: Written,
        script: Path,
        watch: Watch,
    ) -> ExperimentResult:
        base = base_of(script)
        if not all(one.is_relative_to(base) for one in found.files):
            base = Path(os.path.commonpath([base, *found.files]))
        diff = diff_of((one.relative_to(base), one.read_bytes(), new) for one, new in sorted(found.files.items()))
        with closing(TemporaryFolder()) as folder:
            copies = two_copies(folder.path, [script, *found.files])
            _apply(copies[1], diff, base, found.files)
            outcome, again = measured_in(copies, plan, self._name, list(found.files), watch)
        losses = losses_of(outcome.rows)
        low, high = predicted(chosen)
        arm, names = code_arm(again), {name for row in chosen for name in found.made[row.fix]}
        change = CodeChange(
            outcome=outcome_of(arm, losses.get("loss", CodeChange.loss), outcome.rows),
            is_shown_by_cpu=is_shown_by_cpu(arm, again, names),
            files=tuple(one.relative_to(base).as_posix() for one in sorted(found.files)),
            fixes=tuple(row.fix for row in chosen),
            left_out=found.left_out,
            predicted_low=low,
            predicted_high=high,
            problem=outcome.problem,
            is_interrupted=outcome.interrupted,
            **losses,
        )
        result = replace(joined(result, again), code=change)
        if change.outcome in WRITTEN:
            result = replace(result, code=replace(change, path=str(self._path)))
            lines = header(result, [(row, found.made[row.fix]) for row in chosen], str(base))
            check_output(self._path)
            write_file(self._path, [*lines, diff])
        return result


def joined(result: ExperimentResult, again: ExperimentResult) -> ExperimentResult:
    """A result with the sections of a second measurement, of changed code, and its facts where there were none."""
    if not result.sections:
        result = replace(
            again, seconds=result.seconds, trace_report=result.trace_report, recorded_step_ns=result.recorded_step_ns
        )
        return replace(result, sections=again.sections)
    loads = [one.others_cpu_share for one in (result, again) if one.others_cpu_share is not None]
    return replace(
        result,
        others_cpu_share=max(loads, default=None),
        sections=(*(one for one in result.sections if one.name != CODE), *again.sections),
        steps=result.steps + again.steps,
        processes=result.processes + again.processes,
        notes=tuple(dict.fromkeys((*result.notes, *again.notes))),
    )


def _apply(copy: Copy, diff: bytes, base: Path, files: Mapping[Path, bytes]) -> None:
    """Apply a patch to a copy, which must have the new contents then."""
    patch = copy.folder.parent / "the.patch"
    patch.write_bytes(diff)
    copy.apply(patch, base)
    wrong = [file for file, content in files.items() if copy.place(file).read_bytes() != content]
    if wrong:
        raise RefusedPatchError(f"git apply made something else of {wrong[0]} than was meant")
