"""The commands that go on from a report; each of them works where the report was made."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from traceadvisor.model.report import Report
from traceadvisor.rendering.writers.lines import Line, Piece, Style
from traceadvisor.results.redaction import redacted
from traceadvisor.text.shell import pasted

MOST_PARENTS = 2
"""Folders above a capture in which its script may lie: `FOLDER/runs/CAPTURE`."""


def next_commands(report: Report) -> tuple[Line, ...]:
    """Lines for a terminal; none without a finding."""
    if not report.findings:
        return ()
    rule = redacted(report).findings[0].finding.rule.id
    commands = ((f"traceadvisor rules explain {rule}", "more on the first finding"), *_again(report))
    return command_lines(commands)


def command_lines(commands: Sequence[tuple[str, str]]) -> tuple[Line, ...]:
    """Commands below a title, each with a remark."""
    width = min(max(len(command) for command, _ in commands), 60)
    return (Line((Piece("Next:"),)), *(_line(command.ljust(width), what) for command, what in commands))


def _line(command: str, what: str) -> Line:
    return Line((Piece(f"  {command}", Style.CODE), Piece(f"  # {what}", Style.QUIET)), unbroken=True)


def _again(report: Report) -> Iterator[tuple[str, str]]:
    """Commands that run the captured script again; none if it is not found, had ranks, or holds secrets."""
    runs = [one.captured for one in report.recordings]
    words = {run.command for run in runs if run and run.world_size == 1}
    kept = {one.captured.command for one in redacted(report).recordings if one.captured}
    if None in runs or len(words) != 1 or words != kept or len(report.source.paths) != 1:
        return
    (command,) = words
    (path,) = report.source.paths
    folder = _folder(command, path)
    text = pasted(command)
    if folder is None or text is None:
        return
    there = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    run = shlex.quote(str(path if folder == Path() else path.relative_to(folder)))
    fixed = shlex.quote(str((path if folder == Path() else path.relative_to(folder)).with_suffix("")) + "-fixed")
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
