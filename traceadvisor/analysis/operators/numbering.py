"""Dense numbers of distinct combinations of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceadvisor.model.arrays import Int32, Int64
from traceadvisor.model.events import NONE

_LOOKUP_SIZE = 1 << 22
"""Largest range of values that is numbered with a lookup table, which is much faster than sorting."""


def values_at(column: NDArray[Any], rows: Int32 | Int64) -> Int64:
    """Return the values at some rows; NONE for NONE."""
    if not column.size:
        return np.full(rows.shape, NONE, dtype=np.int64)
    return np.where(rows == NONE, NONE, column[rows])


def numbered(*columns: Int32 | Int64) -> tuple[Int64, Int64]:
    """Number the distinct combinations of some columns.

    ``columns``: numbers from NONE up, all of shape ``(n,)``.

    Returns:
        The number of each place, shape ``(n,)``, and one place of each number.
    """
    size = columns[0].size
    if not size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    number, count = np.zeros(size, dtype=np.int64), 1
    for column in columns:
        values: Int64 = column.astype(np.int64, copy=False)
        width = int(column.max(initial=NONE)) - NONE + 1
        if width == 1:  # all are NONE
            continue
        if width > max(_LOOKUP_SIZE // count, 1) and width > count:
            values, width = _dense(values - NONE, width)
            values += NONE
        number, count = _dense(number * width + (values - NONE), count * width)
    example = np.zeros(count, dtype=np.int64)
    example[number] = np.arange(size)
    return number, example


def _dense(values: Int64, width: int) -> tuple[Int64, int]:
    """Renumber values below ``width`` without gaps; also return how many are distinct."""
    if width > max(_LOOKUP_SIZE, 4 * values.size):
        distinct, number = np.unique(values, return_inverse=True)
        return number, int(distinct.size)
    used = np.zeros(width, dtype=np.bool_)
    used[values] = True
    distinct = used.nonzero()[0]
    lookup = np.empty(width, dtype=np.int64)
    lookup[distinct] = np.arange(distinct.size)
    return lookup[values], int(distinct.size)
