"""Array types, and small operations on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound=np.generic)
Columns = TypeVar("Columns", bound="DataclassInstance")
"""A dataclass of arrays of one length."""

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Float64 = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Code(IntEnum):
    """Small numbers with names, which arrays hold."""

    __array_ufunc__ = np.ndarray.__array_ufunc__
    """As of all numbers. Without it, Python 3.11 takes five times as long to compare an array with a member."""


def read_only(*arrays: NDArray[Any]) -> None:
    """Make shared arrays read-only: a write raises ValueError."""
    for array in arrays:
        array.setflags(write=False)


def taken(columns: Columns, chosen: Int64 | Mask | slice) -> Columns:
    """Some rows of a dataclass of arrays, in the given order."""
    made: Any = type(columns)
    some: Columns = made(*[getattr(columns, name)[chosen] for name in _names(made)])
    return some


@cache
def _names(columns: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(columns))


def joined(parts: Sequence[Columns]) -> Columns:
    """The rows of several dataclasses of arrays, one after the other."""
    made: Any = type(parts[0])
    names = _names(made)
    filled = [part for part in parts if getattr(part, names[0]).size] or parts[:1]
    if len(filled) == 1:
        return filled[0]
    return type(filled[0])(*(np.concatenate([getattr(part, name) for part in filled]) for name in names))


def distinct(ascending: NDArray[T]) -> NDArray[T]:
    """Distinct values of a sorted array; faster than ``np.unique``, which takes it for unsorted."""
    return ascending[np.concatenate(([True], ascending[1:] != ascending[:-1]))] if ascending.size else ascending


def among(rows: Int32 | Int64, others: Int32 | Int64) -> Mask:
    """Whether each row number, -1 or larger, is in another array; much faster than ``np.isin``."""
    beyond = int(others.max(initial=-1)) + 1
    known = np.zeros(beyond + 2, dtype=np.bool_)
    known[others] = True  # that of -1 is the last
    return known[np.minimum(rows, beyond)]


def one_of(values: NDArray[T], *wanted: int) -> Mask:
    """Whether each value is one of a few."""
    found: Mask = values == wanted[0]
    for other in wanted[1:]:
        found |= values == other
    return found


def within(values: Int64, numbers: range) -> Mask:
    """Whether each value is in a range of whole numbers."""
    found: Mask = (values >= numbers.start) & (values < numbers.stop)
    return found


def without(rows: Int64, others: Int64) -> Int64:
    """Distinct row numbers of one array that are not in another, ascending; much faster than ``np.setdiff1d``."""
    return distinct(np.sort(rows[~among(rows, others)], kind="stable"))


def common(rows: Int64, others: Int64) -> Int64:
    """Distinct row numbers that are in both arrays, ascending; much faster than ``np.intersect1d``."""
    return distinct(np.sort(rows[among(rows, others)], kind="stable"))


def either(rows: Int64, others: Int64) -> Int64:
    """Distinct row numbers that are in one array or both, ascending; much faster than ``np.union1d``."""
    return distinct(np.sort(np.concatenate((rows, others)), kind="stable"))


def grouped(ids: Int32 | Int64) -> tuple[Int64, Int64]:
    """Distinct values of an array of small integers, -1 or larger, ascending, and the place of each element's value."""
    used = np.bincount(ids + 1) > 0
    return used.nonzero()[0] - 1, (used.cumsum() - 1)[ids + 1]


def numbers_in(ids: Int32 | Int64) -> list[int]:
    """Distinct values of an array of small integers, -1 or larger."""
    return (np.bincount(ids + 1).nonzero()[0] - 1).tolist() if ids.size else []
