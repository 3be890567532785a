"""Columns that grow chunk by chunk, and conversion of arbitrary integers to 64 bits."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.events import NONE

_FIRST_CAPACITY = 1 << 12
"""Elements."""

ROWS = " rows"
"""End of the names of columns with the rows of another column."""

Column = NDArray[Any]


class Parts:
    """Columns by name. A full column doubles its capacity; memory that was never written to costs nothing."""

    def __init__(self) -> None:
        self._columns: dict[str, Column] = {}
        self._sizes: dict[str, int] = {}

    def add(self, name: str, piece: Column) -> None:
        """Append a piece to a column; all pieces of a column have one type."""
        begin = self._sizes.get(name, 0)
        self._sizes[name] = end = begin + piece.size
        column = self._columns.get(name)
        if column is None or end > column.size:
            wider = np.empty(max(2 * end, _FIRST_CAPACITY), piece.dtype)
            if column is not None:
                wider[:begin] = column[:begin]
            self._columns[name] = column = wider
        column[begin:end] = piece

    def fill(self, name: str, value: Column, size: int) -> None:
        """Append copies of a value, an array of one element, until the column has a size."""
        self.add(name, np.repeat(value, size - self._sizes.get(name, 0)))

    def size(self, name: str) -> int:
        """Return the number of values in a column."""
        return self._sizes.get(name, 0)

    def add_all(self, **pieces: Column) -> None:
        """Append one piece to each of several columns."""
        for name, piece in pieces.items():
            self.add(name, piece)

    def move(self, other: Parts, numbers: Mapping[str, Column], first_row: int = 0) -> None:
        """Append all columns of another object, and release them there.

        Args:
            other: columns of the rows that follow.
            numbers: by column, the number here of each number there; NONE at the end.
            first_row: what is added to row numbers, the columns whose name ends with ``rows``.
        """
        for name, column in list(other._columns.items()):
            piece = column[: other._sizes[name]]
            del other._columns[name], other._sizes[name]
            self.add(name, numbers[name][piece] if name in numbers else piece + first_row * name.endswith(ROWS))

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_columns": {name: column[: self._sizes[name]] for name, column in self._columns.items()},
            "_sizes": self._sizes,
        }

    def whole(self, name: str, dtype: type[np.generic]) -> Column:
        """Return and release a column; empty if nothing was added."""
        column = self._columns.pop(name, np.empty(0, dtype))
        return column[: self._sizes.pop(name, 0)].astype(dtype, copy=False)


def keys(values: Sequence[int]) -> Int64:
    """Convert ids: 64-bit ids stay distinct, the largest means none, longer ones become NONE."""
    try:
        return _packed(values)
    except struct.error:
        return int64([value - (1 << 64) if 1 << 63 <= value < 1 << 64 else value for value in values])


def int64(values: Sequence[Any]) -> Int64:
    """Convert integers, also from text; NONE if invalid or beyond 64 bits."""
    try:
        return _packed(values)
    except struct.error:
        return np.array([_fitting(value) for value in values], dtype=np.int64)


def float64(values: Sequence[float]) -> Float64:
    """Convert doubles; the array is read-only."""
    return np.frombuffer(struct.pack(f"{len(values)}d", *values), np.float64)


def _packed(values: Sequence[int]) -> Int64:
    """Convert integers of 64 bits; the array is read-only. Three times as fast as numpy or the ``array`` module."""
    return np.frombuffer(struct.pack(f"{len(values)}q", *values), np.int64)


def _fitting(value: float | str) -> int:
    try:
        number = int(value)
    except (OverflowError, ValueError):
        return NONE
    return number if abs(number) <= np.iinfo(np.int64).max else NONE
