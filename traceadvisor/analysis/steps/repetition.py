"""Finds what a sequence repeats, and where each repetition ends."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from traceadvisor.model.arrays import Int64, Mask

LONGEST = 256
"""Entries of the longest repetition that is looked for."""

_ODD_SHARE, _ODD_SHARE_OF_ONE = 0.3, 0.25
"""Share of entries that differ from the one a repetition later: one in four repetitions of two may lack an entry. It is
lower for repetitions of one entry: if an optimizer steps five times before another one, a third of the steps differ."""


def repeated_part(numbers: Int64) -> tuple[int, ...]:
    """Return the shortest part that a sequence repeats from its start, somewhere exactly; empty without one."""
    for period in range(1, min(numbers.size // 2, LONGEST) + 1):
        same = numbers[:-period] == numbers[period:]
        most = _ODD_SHARE_OF_ONE if period == 1 else _ODD_SHARE
        if (~same).mean() <= most and (start := _first_run(same, period)) is not None:
            part = numbers[start + period : start + 2 * period]
            return tuple(np.roll(part, start % period).tolist())
    return ()


def numbered(sequence: Sequence[Hashable]) -> Int64:
    """Return a number for each entry, the same for equal ones."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(entry, len(numbers)) for entry in sequence], dtype=np.int64)


def repetition_ends(numbers: Sequence[int], part: Sequence[int]) -> list[int]:
    """Return the places of the entries with which repetitions of a part end, also where entries are missing or odd."""
    ends, at = [], 0
    for place, number in enumerate(numbers):
        if number in part[at:]:
            at = part.index(number, at) + 1
        elif number in part:  # the rest of the repetition is missing
            ends.append(place - 1)
            at = part.index(number) + 1
        elif len(part) == 1:
            at = 1
        if at == len(part):
            ends.append(place)
            at = 0
    return ends


def _first_run(same: Mask, length: int) -> int | None:
    """Return the first place from which as many entries are true; None without one."""
    held = np.append(0, np.cumsum(same))
    runs = np.flatnonzero(held[length:] - held[:-length] == length)
    return int(runs[0]) if runs.size else None
