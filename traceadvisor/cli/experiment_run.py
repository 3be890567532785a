"""Parts that ``sweep`` and ``try`` share: options, promises, progress and output."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from traceadvisor import api
from traceadvisor.cli.exit_codes import ExitCode
from traceadvisor.cli.next_commands import after_experiment
from traceadvisor.cli.options import chosen_formats, names_file
from traceadvisor.cli.script_options import Asked
from traceadvisor.cli.streams import tell
from traceadvisor.cli.suggestions import script_first
from traceadvisor.cli.terminal_summary import print_document
from traceadvisor.config import find_settings
from traceadvisor.errors import UsageError
from traceadvisor.experiments.journal import AnyRow, Begin, rounds_of
from traceadvisor.experiments.patching.copies import clear
from traceadvisor.experiments.plan import AS_IT_IS, JOURNAL, LONGEST_GRACE_S, SAME_AGAIN, Plan
from traceadvisor.experiments.result import Surroundings, result_of
from traceadvisor.experiments.run import END_S, LOG, Outcome, Watch, changed_files, footprints, measure
from traceadvisor.judging.experiments import with_results
from traceadvisor.model.command import LAUNCHER_MODULES
from traceadvisor.model.experiment import ExperimentResult
from traceadvisor.model.report import Report
from traceadvisor.rendering.content.experiment.document import experiment_document
from traceadvisor.rendering.content.experiment.words import PROMISES
from traceadvisor.rendering.formats import EXPERIMENT_FORMATS, write_formats
from traceadvisor.rendering.writers.lines import Line
from traceadvisor.statistics import FEWEST_ROUNDS
from traceadvisor.text.cleaning import clean, one_line, withholding

ONE_PROCESS = (
    "sweep and try measure one training process. The processes of torchrun, accelerate launch and other launchers "
    "would have to switch settings at the same step. Name the training script itself, without a launcher."
)
SHORTEST_BLOCK_S, LONGEST_BLOCK_S = 0.3, 2.0
BLOCKS = 200
"""A block takes about this part of the time, within the limits above."""

_LOOK_S = 2.0


FollowUp = Callable[[Plan, ExperimentResult, Sequence[AnyRow], Watch], ExperimentResult]
"""Follows the settings with the time that is left, and adds to their result."""


def run(  # noqa: PLR0917  # what both verbs know
    asked: Asked,
    wanted: Plan,
    around: Surroundings,
    report: Report | None,
    follow_up: FollowUp | None = None,
    share: float = 1.0,
) -> None:
    """Measure, write the result and print it; Ctrl-C writes what was measured so far.

    ``wanted``: what to measure, in any script. ``around``: what is known before. ``share``: the settings' share of the
    time.
    """
    names = chosen_formats(asked.formats, EXPERIMENT_FORMATS)
    if names_file(str(asked.output or ""), EXPERIMENT_FORMATS):
        raise UsageError("sweep and try write several files. Choose a folder with -o.")
    is_module, script = asked.runs_module, asked.words
    check_script(script, is_module=is_module)
    folder = _folder(asked.output, Path(script[0]).stem, around.kind)
    seconds = asked.minutes * 60
    grace_s = min(LONGEST_GRACE_S, seconds / 10)
    plan = replace(
        wanted,
        script=script,
        is_module=is_module,
        folder=str(folder.absolute()),
        deadline_s=time.monotonic() + seconds - grace_s - END_S,
        grace_s=grace_s,
        budget_s=seconds,
        most_steps=asked.steps,
        block_s=min(max(seconds / BLOCKS, SHORTEST_BLOCK_S), LONGEST_BLOCK_S),
    ).withholding()
    click.get_current_context().with_resource(withholding(plan.secrets))
    _promise(plan, asked.minutes)
    around = replace(
        around,
        price=find_settings(Path.cwd(), []).price,
        recorded_start_ns=_start_ns(report),
        recorded_step_ns=recorded_step_ns(report),
    )
    clear()
    before = footprints(Path.cwd(), ignored=folder)
    begin_s = time.monotonic()
    progress = _Progress(plan).show
    first = replace(plan, deadline_s=begin_s + share * (plan.deadline_s - begin_s))
    outcome = measure(first, progress) if _has_settings(plan) else Outcome([], None, interrupted=False, processes=0)
    result = result_of(plan, outcome, around)
    if follow_up and not outcome.interrupted:
        result = follow_up(plan, result, outcome.rows, progress)
    result = replace(
        result,
        seconds=time.monotonic() - begin_s,
        changed_files=_without_patch(changed_files(before, footprints(Path.cwd(), ignored=folder)), result),
    )
    _print(result, folder, names, report, after_experiment(result, folder, asked.minutes, report))
    if outcome.interrupted or (result.code and result.code.is_interrupted):
        sys.exit(128 + 2)
    if not any(section.base_step_ns for section in result.sections):
        sys.exit(ExitCode.UNREADABLE)


def _without_patch(changed: tuple[str, ...] | None, result: ExperimentResult) -> tuple[str, ...] | None:
    """Changed files without the patch that was written."""
    own = result.code.path if result.code else None
    return changed and tuple(name for name in changed if str(Path.cwd() / name) != own)


def _has_settings(plan: Plan) -> bool:
    return bool(plan.changes or plan.axes or plan.switches or plan.all_switches)


def _promise(plan: Plan, minutes: float) -> None:
    time_limit = f"{minutes:g} {'minute' if minutes == 1 else 'minutes'}"
    for promise in PROMISES:
        click.echo(clean(promise.format(scratch=plan.scratch, minutes=time_limit)), err=True)


def check_script(script: Sequence[str], *, is_module: bool) -> None:
    """Raise UsageError if there is no script, or one that cannot be measured."""
    if not script:
        raise UsageError("Name a training script." if not is_module else "-m needs the name of a module.")
    if not is_module and script[0].startswith("-"):
        if right := script_first(script):
            raise UsageError(f"Options of the script stand after its name: {shlex.join(right)}")
        raise UsageError(f"Name the training script behind the options: {shlex.join(script)} -- train.py")
    if not is_module and not os.path.exists(script[0]):  # noqa: PTH110  # a name may be too long for the system
        raise UsageError(f"Cannot run {script[0]}: no such file. {ONE_PROCESS}")
    if (is_module and script[0] in LAUNCHER_MODULES) or os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError(f"A launcher cannot be measured. {ONE_PROCESS}")


def _print(
    result: ExperimentResult, folder: Path, names: Sequence[str], report: Report | None, commands: Sequence[Line]
) -> None:
    """Write the result, JSON always, and print its summary; with a report, its predictions beside the measurements."""
    written = [write_formats(result, folder, {"json": None, **dict.fromkeys(names)}, EXPERIMENT_FORMATS)]
    if report:
        written.append(write_formats(with_results(report, [*report.experiments, result]), folder, ("html",)))
    click.echo()
    print_document(experiment_document(result), [path for one in written for path in one.paths.values()], commands)
    for one in written:
        api.raise_failure(one)


def _start_ns(report: Report | None) -> int | None:
    """The start of the first recording of a report."""
    recorded = (one.recorded_wall_ns for one in report.recordings) if report else ()
    return next((wall_ns[0] for wall_ns in recorded if wall_ns), None)


def recorded_step_ns(report: Report | None) -> float | None:
    """The step of the first recording of a report that has one; no finding's, which may be of the whole loop."""
    steps = (one.step_now_ns for one in report.recordings) if report else ()
    return next(filter(None, steps), None)


def _folder(given: Path | None, script: str, kind: str) -> Path:
    """The output folder, empty of other experiments; its journal keeps others out."""
    time_of_day = datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    folder = given or api.RUNS / f"{time_of_day}-{one_line(clean(script))}-{kind}-{os.getpid()}"
    journal = folder / JOURNAL
    taken = UsageError(f"{folder} already holds an experiment. Choose another folder with -o, or remove it.")
    if any(os.path.lexists(folder / name) for name in ("experiment.json", LOG)):
        raise taken
    try:
        folder.mkdir(parents=True, exist_ok=True)
        journal.touch(exist_ok=False)
    except OSError as error:
        if os.path.lexists(journal):
            raise taken from error
        raise UsageError(f"Cannot write to {folder}: {error.strerror}. Choose another folder with -o.") from error
    return folder


class _Progress:
    """A line on a terminal, rewritten; without a terminal a line for each new experiment."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._is_terminal = sys.stderr.isatty()
        self._shown, self._at_s = "", 0.0

    def show(self, rows: Sequence[Any]) -> None:
        """Show how far the rows are."""
        now_s = time.monotonic()
        line = _progress_line(self._plan, list(rows), now_s)
        if self._is_terminal:
            click.echo(f"\r\033[K{line}", err=True, nl=False)
        elif now_s - self._at_s > _LOOK_S and line.partition(",")[0] != self._shown:
            self._shown, self._at_s = line.partition(",")[0], now_s
            tell(line)


_NAMES = {AS_IT_IS: "as it is", SAME_AGAIN: "as it is, again"}


def _progress_line(plan: Plan, rows: list[AnyRow], now_s: float) -> str:
    """The measurement that runs now, and the time left at most."""
    left_s = max(int(plan.deadline_s - now_s), 0)
    left = f"at most {left_s // 60}:{left_s % 60:02d} left"
    last = next((row for row in reversed(rows) if isinstance(row, Begin)), None)
    if last is None:
        return f"The script starts, {left}"
    done = len(rounds_of(rows, last.experiment))
    arm = _NAMES.get(last.arm, last.arm)
    wanted = "until decided" if plan.until_decided else f"at least {FEWEST_ROUNDS}, at most {plan.most_rounds}"
    if last.experiment == "start":
        return f"The first steps, {left}"
    return f"Measuring {last.experiment.removeprefix('set:')}, round {done + 1} ({wanted}), {arm}, {left}"
