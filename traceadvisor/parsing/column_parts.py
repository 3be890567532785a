"""Columns that grow a window at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECES_A_BLOCK = 256
"""Windows; memory that small pieces leave is not given back, that of large ones is."""

Column = NDArray[Any]


class Parts:
    """Columns in pieces, a window each; many small ones are made one, lest the memory that they leave is lost."""

    def __init__(self) -> None:
        self._pieces: defaultdict[str, list[Column]] = defaultdict(list)
        self._blocks: defaultdict[str, list[Column]] = defaultdict(list)

    def add(self, name: str, piece: Column) -> None:
        """Put a piece behind a column's others."""
        pieces = self._pieces[name]
        pieces.append(piece)
        if len(pieces) == PIECES_A_BLOCK:
            self._blocks[name].append(np.concatenate(pieces))
            pieces.clear()

    def add_all(self, **pieces: Column) -> None:
        """Put a piece behind each of some columns."""
        for name, piece in pieces.items():
            self.add(name, piece)

    def whole(self, name: str, dtype: type[np.generic]) -> Column:
        """The column in one piece; the pieces are given up."""
        parts = self._blocks.pop(name, []) + self._pieces.pop(name, [])
        return np.concatenate(parts or [np.empty(0)]).astype(dtype, copy=False)
