"""The commands that settle an open verdict: more captures of each side, then the comparison of all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traceadvisor.model.comparison import ComparedRun, Comparison
from traceadvisor.model.report import Recording
from traceadvisor.model.verdict import VerdictCertainty
from traceadvisor.rendering.content.comparison.sentences import side_names
from traceadvisor.text.shell import pasted

FEWEST_CAPTURES, MOST_CAPTURES = 3, 8
"""Captures of a side to ask for; nobody pastes more."""


def settling_commands(comparison: Comparison, run: ComparedRun) -> str | None:
    """Lines for a shell: more captures of each side, then the comparison of all.

    None where the change is shown, would need too many captures, or how to capture it or name it is not known.
    """
    change, goal = run.change, max(FEWEST_CAPTURES, run.change.captures_needed or 0 if run.change else 0)
    if change is None or change.certainty is VerdictCertainty.SHOWN or goal > MOST_CAPTURES:
        return None
    if run.work.is_other_program:
        return None
    paths = (comparison.base_paths, comparison.head_paths)
    sides = (run.ranks[0].base, run.ranks[0].head)
    captures = [_captured_again(*one) for one in zip(paths, sides, strict=True)]
    if len(comparison.runs) > 1 or None in captures or (change.is_settled and change.captures_needed is None):
        return None
    counts = (change.base_captures, change.head_captures)
    runs = list(zip(counts, (capture or "" for capture in captures), strict=True))
    if len({one.captured.command for one in sides if one.captured}) == 1:  # so it is the code that differs
        loops = _turns_by_hand(runs, side_names(comparison), goal)
    else:
        loops = _turns(runs, goal)
    named = [
        [*map(_quoted, listed), *(_quoted(listed[0], f"-{number}") for number in range(count + 1, goal + 1))]
        for listed, count in zip(paths, counts, strict=True)
    ]
    if None in (*named[0], *named[1]):
        return None
    base = " ".join(f"--base {path}" for path in named[0])
    return "\n".join((*loops, f"traceadvisor compare {base} {' '.join(map(str, named[1]))}"))


def _captured_again(paths: tuple[Path, ...], recording: Recording) -> str | None:
    """The capture of a side again, into a folder beside the first; None if its command is unknown."""
    command = pasted(recording.captured.command) if recording.captured else None
    folder = _quoted(paths[0], "-$i") if paths else None
    return f"traceadvisor capture -o {folder} -- {command}" if command and folder else None


def _quoted(path: Path, end: str = "") -> str | None:
    stem = path.with_suffix("") if end and path.suffix in {".json", ".gz"} else path
    word = pasted([str(stem)])
    return f"{word}{end}" if word else None


def _turns(runs: Sequence[tuple[int, str]], goal: int) -> list[str]:
    """Loops over captures of both sides in turn: a machine that drifts then affects both.

    ``runs``: how many captures a side has, and the command of one more.
    """
    most = max(count for count, _ in runs)
    alone = [_loop(count + 1, min(most, goal), capture) for count, capture in runs]
    return [*filter(None, alone), *filter(None, [_loop(most + 1, goal, "; ".join(capture for _, capture in runs))])]


def _turns_by_hand(runs: Sequence[tuple[int, str]], sides: Sequence[str], goal: int) -> list[str]:
    """The same as single commands, where the user changes the code before each."""
    numbers = range(min(count for count, _ in runs) + 1, goal + 1)
    turns = ((number, *one) for number in numbers for one in zip(sides, runs, strict=True))
    return [
        f"# with the code of {side}:\n{capture.replace('-$i -- ', f'-{number} -- ', 1)}"
        for number, side, (count, capture) in turns
        if number > count
    ]


def _loop(first: int, last: int, command: str) -> str:
    numbers = " ".join(map(str, range(first, last + 1)))
    return f"for i in {numbers}; do {command}; done" if numbers else ""
