"""Edits of the user's files between two sides, by the checksums of lines that captures record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from traceadvisor.comparing.pairing import Capture
from traceadvisor.frozen import frozen

Lines = Mapping[str, Sequence[int]]
"""Checksums of the lines of files; 0 for lines without code."""


@frozen
class Edit:
    """Lines of code that only one side of a file has."""

    file: str
    removed: int
    added: int


def edits(base: Iterable[Capture], head: Iterable[Capture]) -> tuple[Edit, ...] | None:
    """Return the edits of files, the largest first; None where the code of a side is unknown, or its captures differ.

    Moved lines are no edit. A file that only one side runs counts with all of its lines.
    """
    ours, theirs = _lines(base), _lines(head)
    if not ours or not theirs:
        return None
    found = []
    for file in dict.fromkeys((*ours, *theirs)):
        before, after = (Counter(filter(None, side.get(file, ()))) for side in (ours, theirs))
        if before != after:
            found.append(Edit(file, (before - after).total(), (after - before).total()))
    return tuple(sorted(found, key=lambda one: -(one.removed + one.added)))


def lines_edited(base: Iterable[Capture], head: Iterable[Capture]) -> frozenset[tuple[str, int]]:
    """Return the lines of BASE, by file and number, whose text HEAD does not have in that file."""
    ours, theirs = _lines(base) or {}, _lines(head) or {}
    return frozenset((file, number) for file in ours if file in theirs for number in _missing(ours[file], theirs[file]))


def _missing(lines: Sequence[int], others: Iterable[int]) -> Iterator[int]:
    kept = {*others}
    yield from (number for number, one in enumerate(lines, start=1) if one and one not in kept)


def _lines(side: Iterable[Capture]) -> Lines | None:
    """The lines that all captures of a side have."""
    runs = [one.captured.settings.own_lines for capture in side for one in capture.recordings if one.captured]
    return runs[0] if runs and all(one == runs[0] for one in runs) else None
