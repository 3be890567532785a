"""Columns that grow a window at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
