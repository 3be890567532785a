"""Integers from anywhere into columns of 64 bits."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE


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
