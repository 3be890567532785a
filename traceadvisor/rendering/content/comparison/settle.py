"""The commands that would settle a comparison."""

from __future__ import annotations

import shlex
from pathlib import Path

from traceadvisor.model.comparison import ComparedRun, Comparison, DifferenceKind
from traceadvisor.model.report import Recording
from traceadvisor.model.verdict import VerdictCertainty
from traceadvisor.text.shell import pasted

FEWEST, MOST = 3, 8
"""Captures of a side to ask for; nobody pastes more."""


def settling_commands(comparison: Comparison, run: ComparedRun) -> str | None:
    """Lines for a shell: more captures of each side, then the comparison of all.

    None where the change is likely or shown, would need too many captures, or how to capture it is not known.
    """
    change, goal = run.change, max(FEWEST, run.change.captures_needed or 0 if run.change else 0)
    if change is None or change.certainty is not VerdictCertainty.NOT_SHOWN or goal > MOST:
        return None
    paths = (comparison.base_paths, comparison.head_paths)
    captures = [_capture(*one) for one in zip(paths, (run.ranks[0].base, run.ranks[0].head), strict=True)]
    if len(comparison.runs) > 1 or None in captures or (change.is_settled and change.captures_needed is None):
        return None
    counts = (change.base_captures, change.head_captures)
    loops = [_loop(count + 1, goal, capture or "") for count, capture in zip(counts, captures, strict=True)]
    if any(one.kind is DifferenceKind.CODE for one in run.differences):
        loops = [f"{loop}  # with the code of {side}" for loop, side in zip(loops, ("BASE", "HEAD"), strict=True)]
    sides = [
        [*map(_quoted, listed), *(_quoted(listed[0], f"-{number}") for number in range(count + 1, goal + 1))]
        for listed, count in zip(paths, counts, strict=True)
    ]
    base = " ".join(f"--base {path}" for path in sides[0])
    return "\n".join((*filter(None, loops), f"traceadvisor compare {base} {' '.join(sides[1])}"))


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
