"""Edits of the user's files between two sides, by the checksums of lines that captures record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from traceadvisor.comparing.pairing import Capture
from traceadvisor.frozen import frozen

Lines = Mapping[str, Sequence[int]]
"""Checksums of the lines of files; 0 for lines without code, and none for a file whose lines are unknown."""


@frozen
class Edit:
    """Lines of code that only one side of a file has."""

    file: str
    removed: int
    added: int


def edits(base: Iterable[Capture], head: Iterable[Capture]) -> tuple[Edit, ...] | None:
    """Return the edits of files, the largest first; None where none is known and the code of a side is not, either.

    Moved lines are no edit. A file that only one side runs counts with all of its lines.
    """
    ours, theirs = _lines(base), _lines(head)
    if not ours or not theirs:
        return None
    found, is_known = [], True
    for file in dict.fromkeys((*ours, *theirs)):
        if () in {tuple(side.get(file, (0,))) for side in (ours, theirs)}:
            is_known = False
            continue
        before, after = (Counter(filter(None, side.get(file, ()))) for side in (ours, theirs))
        if before != after:
            found.append(Edit(file, (before - after).total(), (after - before).total()))
    return tuple(sorted(found, key=lambda one: -(one.removed + one.added))) if found or is_known else None


def lines_edited(base: Iterable[Capture], head: Iterable[Capture]) -> frozenset[tuple[str, int]]:
    """Return the lines of BASE, by file and number, whose text HEAD does not have in that file."""
    ours, theirs = _lines(base) or {}, _lines(head) or {}
    return frozenset(
        (file, number) for file in ours if theirs.get(file) for number in _missing(ours[file], theirs[file])
    )


def _missing(lines: Sequence[int], others: Iterable[int]) -> Iterator[int]:
    kept = {*others}
    yield from (number for number, one in enumerate(lines, start=1) if one and one not in kept)


def _lines(side: Iterable[Capture]) -> Lines | None:
    """The lines that all captures of a side have."""
    runs = [one.captured.settings.own_lines for capture in side for one in capture.recordings if one.captured]
    return runs[0] if runs and all(one == runs[0] for one in runs) else None
