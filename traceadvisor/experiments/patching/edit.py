"""Measures a change of the user's code that stands in a patch, without changing the user's files."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from traceadvisor.errors import UsageError
from traceadvisor.experiments.journal import AnyRow
from traceadvisor.experiments.patching.copies import (
    Copy,
    RefusedPatchError,
    TemporaryFolder,
    base_of,
    check_git,
    check_regular,
    touched,
)
from traceadvisor.experiments.patching.functions import KeptApart, changed_in
from traceadvisor.experiments.patching.judged import code_arm, kept_apart, losses_of, outcome_of
from traceadvisor.experiments.patching.proved import joined, measured_in, script_file, two_copies
from traceadvisor.experiments.plan import Change, Plan
from traceadvisor.experiments.run import Watch
from traceadvisor.experiments.settings import PATCH, Settings
from traceadvisor.model.experiment import ExperimentResult
from traceadvisor.model.patch import CodeChange
from traceadvisor.text.cleaning import clean, one_line


class Edit:
    """A change that ``try --edit`` measures: in one process if that is possible, else in processes of their own."""

    def __init__(self, patch: Path, plan: Plan) -> None:
        """Apply the patch to a copy.

        Raises:
            UsageError: there is no such patch, or Git refuses it.
        """
        check_git()
        self._name = one_line(clean(patch.name))
        script = script_file(plan)
        self._base, self._files = _found(patch.resolve(), script)
        self._folder = TemporaryFolder()
        try:
            self._copies = two_copies(self._folder.path, [script, *self._files])
            self._copies[1].apply(patch.resolve(), self._base)
            check_regular(self._files, self._copies[1])
            _check_python(self._files, self._copies[1])
            self._apart = _apart(self._files, self._copies[1], script)
        except OSError as error:
            self.close()
            raise UsageError(f"The copy of the script's folder failed: {error.strerror}.") from error
        except BaseException:  # also Ctrl-C, which ends the process without removing anything
            self.close()
            raise

    def close(self) -> None:
        """Remove the copies."""
        self._folder.close()

    def plan(self, plan: Plan) -> Plan:
        """The plan to alternate the changed functions in one process; without changes if that cannot be."""
        if self._apart:
            return replace(plan, changes=())
        settings = Settings.of({PATCH: self._name})
        code = {str(file): str(self._copies[1].place(file)) for file in self._files}
        return replace(plan, changes=(Change(settings.words(), settings.document()),), code=code)

    def __call__(self, plan: Plan, result: ExperimentResult, rows: Sequence[AnyRow], watch: Watch) -> ExperimentResult:
        """The result with what was measured of the change."""
        reported = kept_apart(rows)
        apart = self._apart or (reported and KeptApart(reported.reason, reported.at))
        problem, is_interrupted = result.problem, False
        if apart:
            outcome, again = measured_in(self._copies, plan, self._name, self._files, watch)
            rows, problem, is_interrupted = outcome.rows, outcome.problem, outcome.interrupted
            result = joined(result, again)
        losses = losses_of(rows)
        change = CodeChange(
            outcome=outcome_of(code_arm(result), losses.get("loss", CodeChange.loss), rows),
            files=tuple(one.relative_to(self._base).as_posix() for one in self._files),
            apart=apart.reason if apart else None,
            apart_at=apart.at if apart else None,
            problem=problem,
            is_interrupted=is_interrupted,
            **losses,
        )
        return replace(result, code=change, problem=problem)


def _found(patch: Path, script: Path) -> tuple[Path, list[Path]]:
    """The folder to which the paths in a patch refer, and its files: of the repository, or of the working directory."""
    bases = dict.fromkeys([base_of(script), Path.cwd().resolve()])
    found = {base: touched(patch, base) for base in bases}
    for base, files in found.items():
        if any(file.is_file() for file in files):
            return base, files
    raise UsageError(
        f"{clean(str(patch))} changes no file below {' or '.join(clean(str(one)) for one in bases)}. "
        "Paths in a patch begin there, as `git diff` writes them, and one of its files has to be there already."
    )


def _check_python(files: Sequence[Path], changed: Copy) -> None:
    """Raise RefusedPatchError if a file is no Python with the patch, and is it without."""
    for file in files:
        new = changed.place(file)
        problem = _problem(new) if file.suffix == ".py" and new.is_file() else None
        if problem and not (file.is_file() and _problem(file)):
            name = one_line(clean(file.name))
            raise RefusedPatchError(f"With the patch, {name} is no Python: {problem}. Correct the patch.")


def _problem(file: Path) -> str | None:
    """Why a file is no Python; None if it is, or is nested too deeply to tell."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the user's code about itself
            ast.parse(file.read_bytes())
    except SyntaxError as error:
        return f"{clean(error.msg)} (line {error.lineno})" if error.lineno else clean(error.msg)
    except (RecursionError, MemoryError):
        return None
    except ValueError as error:  # a NUL
        return clean(str(error))
    return None


def _apart(files: Sequence[Path], changed: Copy, script: Path) -> KeptApart | None:
    """Why the change cannot alternate in one process, whatever else the run loads; None where the run has to tell."""
    found, reasons = 0, {}
    for file in files:
        try:
            found += len(changed_in(file, changed.place(file)))
        except KeptApart as reason:
            reasons[file] = reason
    if not found and not reasons:
        raise RefusedPatchError("The patch changes comments and layout only: there is nothing to measure.")
    return reasons.get(script, None if found else next(iter(reasons.values())))
