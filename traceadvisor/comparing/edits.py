"""Edits of the user's files between two sides, by the checksums of lines that captures record."""

from __future__ import annotations

import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path, PurePath

from traceadvisor.comparing.pairing import Capture
from traceadvisor.frozen import frozen
from traceadvisor.recording.script.own_lines import LARGEST_FILE_BYTES, checksums_of
from traceadvisor.text.cleaning import clean

SIMILAR_SHARE = 0.5
"""A file with more of the lines of another one is the same file with another name."""

MOST_DIFF_LINES = 40

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

    Moved lines are no edit. A file that only one side runs counts with all of its lines, unless it was renamed.
    """
    ours, theirs, names = _both(base, head)
    if not ours or not theirs:
        return None
    found, is_known = [], True
    for file in dict.fromkeys((*ours, *theirs)):
        if () in {tuple(side.get(file, (0,))) for side in (ours, theirs)}:
            is_known = False
            continue
        before, after = (Counter(filter(None, side.get(file, ()))) for side in (ours, theirs))
        if before != after:
            name = f"{file} -> {names[file]}" if file in names else file
            found.append(Edit(name, (before - after).total(), (after - before).total()))
    return tuple(sorted(found, key=lambda one: -(one.removed + one.added))) if found or is_known else None


def lines_edited(base: Iterable[Capture], head: Iterable[Capture]) -> frozenset[tuple[str, int]]:
    """Return the lines of BASE, by file and number, whose text HEAD does not have in that file."""
    ours, theirs, _ = _both(base, head)
    return frozenset(
        (file, number) for file in ours if theirs.get(file) for number in _missing(ours[file], theirs[file])
    )


def renamed(base: Iterable[Capture], head: Iterable[Capture]) -> Mapping[str, str]:
    """Return the new name of a file that HEAD has under another name in the same folder, by its name in BASE."""
    return _both(base, head)[2]


def diff_at_hand(base: Sequence[Capture], head: Sequence[Capture]) -> tuple[str, ...]:
    """Return the difference of the files that were renamed, if both are at hand and as they were recorded."""
    ours, theirs, names = _both(base, head)
    folders = [folder for side in (base, head) for one in side for folder in _folders(one)]
    found: list[str] = []
    for before, after in names.items():
        old, new = _text(before, ours[before], folders), _text(after, theirs[before], folders)
        if old and new:
            found += [*unified_diff(old, new, lineterm="", n=1)][2:]  # without the names
    return tuple(found[:MOST_DIFF_LINES])


def _folders(capture: Capture) -> Iterator[Path]:
    """Folders in which the script of a capture may be: here, or above the capture."""
    yield Path()
    yield from (above for one in capture.recordings for above in one.path.parents[1:4])


def _text(name: str, lines: Sequence[int], folders: Iterable[Path]) -> list[str]:
    """The lines of a file with these checksums; none if it is not at hand."""
    for path in dict.fromkeys(folder / name for folder in folders):
        with suppress(OSError, SyntaxError, ValueError):
            if path.stat().st_size <= LARGEST_FILE_BYTES:
                with tokenize.open(path) as content:
                    if checksums_of(text := content.read()) == tuple(lines):
                        return [clean(line) for line in text.splitlines()]
    return []


def _both(base: Iterable[Capture], head: Iterable[Capture]) -> tuple[Lines, Lines, Mapping[str, str]]:
    """The lines of both sides by file, those of a renamed file of HEAD by its name in BASE, and the new name."""
    ours, theirs = dict(_lines(base) or {}), dict(_lines(head) or {})
    gone, new = [file for file in ours if file not in theirs], [file for file in theirs if file not in ours]
    if len(gone) != 1 or len(new) != 1 or PurePath(gone[0]).parent != PurePath(new[0]).parent:
        return ours, theirs, {}
    before, after = (Counter(filter(None, lines)) for lines in (ours[gone[0]], theirs[new[0]]))
    if (before & after).total() <= SIMILAR_SHARE * max(before.total(), after.total()):
        return ours, theirs, {}
    return ours, {gone[0] if file == new[0] else file: lines for file, lines in theirs.items()}, {gone[0]: new[0]}


def _missing(lines: Sequence[int], others: Iterable[int]) -> Iterator[int]:
    kept = {*others}
    yield from (number for number, one in enumerate(lines, start=1) if one and one not in kept)


def _lines(side: Iterable[Capture]) -> Lines | None:
    """The lines that all captures of a side have."""
    runs = [one.captured.settings.own_lines for capture in side for one in capture.recordings if one.captured]
    return runs[0] if runs and all(one == runs[0] for one in runs) else None
