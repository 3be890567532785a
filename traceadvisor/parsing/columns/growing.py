"""Columns that grow a window at a time.

Integers from anywhere into columns of 64 bits.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE

_FIRST_CAPACITY = 1 << 12
"""Elements."""

Column = NDArray[Any]


class Parts:
    """Columns by name. Where one is full its place is doubled: memory that nothing was written to yet costs nothing."""

    def __init__(self) -> None:
        self._columns: dict[str, Column] = {}
        self._sizes: dict[str, int] = {}

    def add(self, name: str, piece: Column) -> None:
        """Put a piece behind a column's others; all of a column are of one type."""
        begin = self._sizes.get(name, 0)
        self._sizes[name] = end = begin + piece.size
        column = self._columns.get(name)
        if column is None or end > column.size:
            wider = np.empty(max(2 * end, _FIRST_CAPACITY), piece.dtype)
            if column is not None:
                wider[:begin] = column[:begin]
            self._columns[name] = column = wider
        column[begin:end] = piece

    def add_all(self, **pieces: Column) -> None:
        """Put a piece behind each of some columns."""
        for name, piece in pieces.items():
            self.add(name, piece)

    def whole(self, name: str, dtype: type[np.generic]) -> Column:
        """The column, which is given up; an empty one where nothing was put in."""
        column = self._columns.pop(name, np.empty(0, dtype))
        return column[: self._sizes.pop(name, 0)].astype(dtype, copy=False)


def keys(values: list[int]) -> Int64:
    """Ids as a column: those of 64 bits stay distinct, the largest stands for none; longer ones match nothing."""
    try:
        return np.frombuffer(array("q", values), np.int64)
    except OverflowError:
        return int64([value - (1 << 64) if 1 << 63 <= value < 1 << 64 else value for value in values])


def int64(values: list[Any]) -> Int64:
    """Integers as a column; text is read as a number, what is none or needs more than 64 bits matches nothing."""
    try:
        return np.frombuffer(array("q", values), np.int64)
    except (OverflowError, TypeError):
        return np.array([_fitting(value) for value in values], dtype=np.int64)


def _fitting(value: float | str) -> int:
    try:
        number = int(value)
    except (OverflowError, ValueError):
        return NONE
    return number if abs(number) <= np.iinfo(np.int64).max else NONE
