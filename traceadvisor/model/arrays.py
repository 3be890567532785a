"""Array types by their element."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Float64 = NDArray[np.float64]
Mask = NDArray[np.bool_]


def read_only(*arrays: NDArray[Any]) -> None:
    """Keep what many read from being changed by one of them: from here on a write into an array raises."""
    for array in arrays:
        array.flags.writeable = False


def distinct(ascending: Int64) -> Int64:
    """Each value of a sorted array once; numpy's own ``unique`` would hash every one of them."""
    return ascending[np.append(True, ascending[1:] != ascending[:-1])] if ascending.size else ascending


def numbers_in(ids: Int32 | Int64) -> list[int]:
    """Which of few small numbers from -1 upward occur in an array of any length."""
    return (np.flatnonzero(np.bincount(ids + 1)) - 1).tolist() if ids.size else []
