"""The commands that go on from a report; each of them works where the report was made."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from traceadvisor.model.experiment import ExperimentResult
from traceadvisor.model.report import Report
from traceadvisor.model.verdict import Verdict
from traceadvisor.rendering.writers.lines import Line, Piece, Style
from traceadvisor.results.redaction import redacted
from traceadvisor.text.secrets import without_secret_arguments
from traceadvisor.text.shell import pasted

MOST_PARENTS = 2
"""Folders above a capture in which its script may lie: `FOLDER/runs/CAPTURE`."""


SWEEP = "no finding: measure whether other settings are faster"
NOTHING_LEFT = Line((Piece("Next: nothing is left to do."),))


def next_commands(report: Report) -> tuple[Line, ...]:
    """Lines for a terminal; none if nothing was recorded, or if nothing was found and the script is not at hand."""
    if not report.recordings:
        return ()
    if not report.findings:
        again = _run_again(report)
        return command_lines([(f"{again[0]}traceadvisor sweep -- {again[2]}", SWEEP)]) if again else ()
    rule = redacted(report).findings[0].finding.rule.id
    commands = ((f"traceadvisor rules explain {rule}", "more on the first finding"), *_again(report))
    return command_lines(commands)


def command_lines(commands: Sequence[tuple[str, str]]) -> tuple[Line, ...]:
    """Commands below a title, each with a remark."""
    width = min(max(len(command) for command, _ in commands), 60)
    return (Line((Piece("Next:"),)), *(_line(command.ljust(width), what) for command, what in commands))


def _line(command: str, what: str) -> Line:
    return Line((Piece(f"  {command}", Style.CODE), Piece(f"  # {what}", Style.QUIET)), unbroken=True)


def after_experiment(
    result: ExperimentResult, folder: Path, minutes: float, report: Report | None = None
) -> tuple[Line, ...]:
    """The commands to go on with after a result; or that nothing is left to do.

    With a ``report`` whose first finding is a change of code that was not measured, one measures that.
    """
    words = result.command
    text = pasted(words) if words == without_secret_arguments(words) else None
    arms = [arm.measured for one in result.sections for arm in one.arms if arm.measured]
    is_open = result.is_short_of_time or any(arm.verdict == Verdict.INCONCLUSIVE.value for arm in arms)
    is_changed = bool(result.recommended or (result.code and result.code.path))
    commands = []
    if text and is_changed:
        capture = f"traceadvisor capture -o {shlex.quote(f'{folder}-fixed')} -- {text}"
        commands.append((capture, "after the change above: record again"))
    elif text and is_open and not result.problem:  # a problem says what to do
        commands += _longer(result, folder, minutes)
    first = redacted(report).findings[0] if report and report.findings else None
    if text and first and not first.has_settings and result.trace_report and not result.code:
        edit = f"traceadvisor try {shlex.quote(result.trace_report)} --edit my.patch -- {text}"
        commands.append((edit, f"{first.finding.rule.id} changes code: measure your change, written as a patch"))
    if commands:
        return command_lines(commands)
    return () if result.problem or result.left_out or is_open or is_changed else (NOTHING_LEFT,)


def _longer(result: ExperimentResult, folder: Path, minutes: float) -> Iterator[tuple[str, str]]:
    """The command that measures for longer."""
    words, given = result.command, sys.argv[1:]
    options, script = [one for one in given[: -len(words)] if one != "--"], given[-len(words) :]
    for name in ("--minutes", "-o", "--output"):
        if name in options:
            del options[options.index(name) : options.index(name) + 2]
    times = 2 if result.base_step_ns else 4  # without a step, most of the time was the start
    more = ["--minutes", f"{times * minutes:g}", "-o", f"{folder}-longer", "--", *script]
    longer = pasted(["traceadvisor", *options, *more]) if tuple(script) == words else None
    used = f"undecided after {result.seconds / 60:.1f} of {minutes:g} minutes"
    if longer:
        yield longer, f"{used}: measure longer{' on an idle machine' if result.is_busy else ''}"


def _run_again(report: Report) -> tuple[str, Path, str] | None:
    """The change of folder, the capture from there, and the captured command; None as for :func:`_again`."""
    runs = [one.captured for one in report.recordings]
    words = {run.command for run in runs if run and run.world_size == 1}
    kept = {one.captured.command for one in redacted(report).recordings if one.captured}
    if None in runs or len(words) != 1 or words != kept or len(report.source.paths) != 1:
        return None
    (command,) = words
    (path,) = report.source.paths
    folder = _folder(command, path)
    text = pasted(command)
    if folder is None or text is None:
        return None
    there = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    return there, path if folder == Path() else path.relative_to(folder), text


def _again(report: Report) -> Iterator[tuple[str, str]]:
    """Commands that run the captured script again; none if it is not found, had ranks, or holds secrets."""
    again = _run_again(report)
    if again is None:
        return
    there, path, text = again
    run, fixed = shlex.quote(str(path)), shlex.quote(f"{path.with_suffix('')}-fixed")
    if any(row.has_settings for row in report.findings) and not report.experiments:
        yield f"{there}traceadvisor try {run} -- {text}", "measure the fixes"
    if not report.findings[0].has_settings:
        yield f"{there}traceadvisor try {run} --edit my.patch -- {text}", "measure your change, a patch of the script"
    yield f"{there}traceadvisor capture -o {fixed} -- {text}", "record again after the fix"
    yield f"{there}traceadvisor compare {run} {fixed}", "what the fix changed"


def _folder(command: Sequence[str], capture: Path) -> Path | None:
    """The folder in which the command runs: here, or above the capture; None if its script lies in neither."""
    if command[:1] == ("-m",):
        return Path()
    script = Path(command[0]) if command else None
    above = list(capture.parents)[:MOST_PARENTS]
    return next((one for one in (Path(), *above) if script and (one / script).is_file()), None)
