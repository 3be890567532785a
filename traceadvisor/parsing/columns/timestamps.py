"""Convert microseconds as text to integer nanoseconds, exactly.

A double cannot hold today's absolute time stamps to the nanosecond (the error reaches 125 ns), so the digits
themselves are read, for a whole chunk of events at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceadvisor.model.arrays import Int64

INVALID_NS = np.iinfo(np.int64).min
"""Marks a text that is not a usable number."""

_COMMA, _DOT, _ZERO = ord(","), ord("."), ord("0")
_MOST_DIGITS = 16
"""Digits before the dot in today's absolute times; values beyond 64 bits of nanoseconds turn negative."""

_DECIMALS = 3
"""Digits after the dot, as every profiler since 2023 writes them."""

_HALF = 10
"""Digits of the lower half of a number."""

_PLAIN = np.zeros(256, dtype=np.bool_)
_PLAIN[[*b"0123456789.,"]] = True

Bytes = NDArray[np.uint8]


def nanoseconds(texts: Sequence[bytes | msgspec.Raw]) -> Int64:
    """Return the nanoseconds of each text, a JSON number in microseconds; INVALID_NS if it is not one.

    Further decimals are rounded half up.
    """
    if not texts:
        return np.empty(0, dtype=np.int64)
    written = b",".join((*texts, b""))
    joined = np.frombuffer(written.replace(b'"', b"") if written[:1] == b'"' else written, dtype=np.uint8)
    for way in (_of_one_shape, _from_digits):
        found = way(joined, len(texts))
        if found is not None:
            return found
    return np.array([_from_text(bytes(text)) for text in texts], dtype=np.int64)


def _of_one_shape(joined: Bytes, count: int) -> Int64 | None:
    """Fastest: texts of one width, digits only or with three decimals; None if any text differs."""
    width, rest = divmod(joined.size, count)
    if rest or not 1 < width <= _MOST_DIGITS + 2 + _DECIMALS:
        return None
    table = joined.reshape(count, width)
    if not (table[:, -1] == _COMMA).all():
        return None
    whole = width - 1
    if has_dot := whole > _DECIMALS + 1 and table[0, -2 - _DECIMALS] == _DOT:
        whole -= 1 + _DECIMALS
        if not (table[:, whole] == _DOT).all():
            return None
    digits = table - _ZERO  # characters below digits, such as dots and commas, wrap around to above 9
    if np.count_nonzero(digits > 9) != count * (1 + has_dot) or whole > _MOST_DIGITS:
        return None
    upper, lower = _worths(width, whole)
    values = digits.astype(np.float64)
    found: Int64 = (values @ upper).astype(np.int64) * 10**_HALF + (values @ lower).astype(np.int64)
    return found


@lru_cache
def _worths(width: int, whole: int) -> NDArray[np.float64]:
    """Return the nanoseconds of a 1 in each column, apart for the upper and the lower half of a number's digits.

    Doubles hold the digits of half a number, and multiply faster than integers. A dot and the comma count nothing.
    """
    columns = [*range(whole), *range(whole + 1, width - 1)]
    worths = np.zeros((2, width))
    for power, column in enumerate(reversed(columns), _DECIMALS - len(columns) + whole):
        worths[int(power < _HALF), column] = 10 ** (power % _HALF)
    return worths


def _from_digits(joined: Bytes, count: int) -> Int64 | None:
    """Fast: plain digits with at most one dot each; None if any text differs."""
    if not _PLAIN[joined].all():
        return None
    ends = np.flatnonzero(joined == _COMMA)
    if ends.size != count:
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    dots = np.flatnonzero(joined == _DOT)
    dotted = np.searchsorted(ends, dots)
    if (dotted[1:] == dotted[:-1]).any():
        return None
    whole_ends = ends.copy()
    whole_ends[dotted] = dots
    widths = whole_ends - starts
    if widths.min() < 1 or widths.max() > _MOST_DIGITS:
        return None
    digits = joined.astype(np.int64) - _ZERO
    result = np.zeros(count, dtype=np.int64)
    for place in range(int(widths.max())):
        at = whole_ends - 1 - place
        result += np.where(at >= starts, digits[np.maximum(at, 0)], 0) * 10 ** (place + 3)
    for place, worth in enumerate((100, 10, 1)):
        at = whole_ends + 1 + place
        result += np.where(at < ends, digits[np.minimum(at, joined.size - 1)], 0) * worth
    fourth = whole_ends + 4
    result += (fourth < ends) & (digits[np.minimum(fourth, joined.size - 1)] >= 5)
    return result


def _from_text(text: bytes) -> int:
    """Slow: signs, exponents, quotes; INVALID_NS if it is not a 64-bit number."""
    try:
        value = Decimal(text.decode("ascii").strip('" ')) * 1000
        if abs(value) >= np.iinfo(np.int64).max - 1:
            return INVALID_NS
        return int(value.to_integral_value(ROUND_HALF_UP))
    except (ArithmeticError, ValueError):
        return INVALID_NS
