"""The commands that would settle a comparison."""

from __future__ import annotations

import shlex
from pathlib import Path

from traceadvisor.model.comparison import ComparedRun, Comparison
from traceadvisor.model.report import Recording
from traceadvisor.model.verdict import VerdictCertainty
from traceadvisor.rendering.content.comparison.sentences import side_names
from traceadvisor.text.shell import pasted

FEWEST, MOST = 3, 8
"""Captures of a side to ask for; nobody pastes more."""


def settling_commands(comparison: Comparison, run: ComparedRun) -> str | None:
    """Lines for a shell: more captures of each side, then the comparison of all.

    None where the change is shown, would need too many captures, or how to capture it is not known.
    """
    change, goal = run.change, max(FEWEST, run.change.captures_needed or 0 if run.change else 0)
    if change is None or change.certainty is VerdictCertainty.SHOWN or goal > MOST:
        return None
    paths = (comparison.base_paths, comparison.head_paths)
    sides = (run.ranks[0].base, run.ranks[0].head)
    captures = [_capture(*one) for one in zip(paths, sides, strict=True)]
    if len(comparison.runs) > 1 or None in captures or (change.is_settled and change.captures_needed is None):
        return None
    counts = (change.base_captures, change.head_captures)
    runs = [("", count, capture or "") for count, capture in zip(counts, captures, strict=True)]
    if len({one.captured.command for one in sides if one.captured}) == 1:  # so it is the code that differs
        whose = zip(runs, side_names(comparison), strict=True)
        runs = [(f"# with the code of {side}:\n", count, capture) for (_, count, capture), side in whose]
    elif counts[0] == counts[1]:  # in turn: a machine that drifts then affects both
        runs = [("", counts[0], "; ".join(capture or "" for capture in captures))]
    loops = [f"{lead}{loop}" for lead, count, capture in runs if (loop := _loop(count + 1, goal, capture))]
    named = [
        [*map(_quoted, listed), *(_quoted(listed[0], f"-{number}") for number in range(count + 1, goal + 1))]
        for listed, count in zip(paths, counts, strict=True)
    ]
    base = " ".join(f"--base {path}" for path in named[0])
    return "\n".join((*loops, f"traceadvisor compare {base} {' '.join(named[1])}"))


def _capture(paths: tuple[Path, ...], recording: Recording) -> str | None:
    """The capture of a side again, into a folder beside the first; None if its command is unknown."""
    command = pasted(recording.captured.command) if recording.captured else None
    if command is None or not paths:
        return None
    return f"traceadvisor capture -o {_quoted(paths[0], '-$i')} -- {command}"


def _quoted(path: Path, end: str = "") -> str:
    stem = path.with_suffix("") if end and path.suffix in {".json", ".gz"} else path
    return f"{shlex.quote(str(stem))}{end}"


def _loop(first: int, last: int, command: str) -> str:
    numbers = " ".join(map(str, range(first, last + 1)))
    return f"for i in {numbers}; do {command}; done" if numbers else ""
