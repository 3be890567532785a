"""Lists of names that stay short however many there are."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMES = 4
"""Names in a sentence; a reader skips more."""


def listed(names: Sequence[str], most: int = MOST_NAMES, sign: str = ", ") -> str:
    """The first of the names, and how many more there are: ``a, b and 7 more``."""
    more = len(names) - most
    shown = sign.join(names[:most])
    return f"{shown}{' and' if sign == ', ' else f'{sign}and'} {more:,} more" if more > 0 else shown
