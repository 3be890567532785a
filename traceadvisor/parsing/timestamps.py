"""Microseconds as text to nanoseconds as integers, exactly.

A double cannot hold today's absolute time stamps to the nanosecond (the error reaches 125 ns), so the digits
themselves are read, for a whole window of events at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

import msgspec
import numpy as np

from traceadvisor.model.arrays import Int64

INVALID_NS = np.iinfo(np.int64).min
"""What stands for a text that is no usable number."""

_COMMA, _DOT, _ZERO = ord(","), ord("."), ord("0")
_MOST_DIGITS = 16
"""Whole digits, as today's absolute times have them; what overflows 64 bits of nanoseconds turns negative."""

_PLAIN = np.zeros(256, dtype=np.bool_)
_PLAIN[[*b"0123456789.,"]] = True


def nanoseconds(texts: Sequence[bytes | msgspec.Raw]) -> Int64:
    """Nanoseconds of each text, a JSON number in microseconds; INVALID_NS where it is none.

    A fourth decimal and those after it are rounded half up.
    """
    if not texts:
        return np.empty(0, dtype=np.int64)
    joined = np.frombuffer(b",".join(texts), dtype=np.uint8)
    fast = _from_digits(joined, len(texts)) if _PLAIN[joined].all() else None
    return fast if fast is not None else np.array([_from_text(bytes(text)) for text in texts], dtype=np.int64)


def _from_digits(joined: np.typing.NDArray[np.uint8], count: int) -> Int64 | None:
    """The fast way: plain digits with at most one dot each; None where some text is not of that form."""
    ends = np.append(np.flatnonzero(joined == _COMMA), joined.size)
    if ends.size != count:
        return None
    starts = np.concatenate(([0], ends[:-1] + 1))
    dots = np.flatnonzero(joined == _DOT)
    dotted = np.searchsorted(ends, dots)
    if np.unique(dotted).size != dotted.size:
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
    """The slow way: signs, exponents, quotes; INVALID_NS for anything that is no number of 64 bits."""
    try:
        value = Decimal(text.decode("ascii").strip('" ')) * 1000
        if abs(value) >= np.iinfo(np.int64).max - 1:
            return INVALID_NS
        return int(value.to_integral_value(ROUND_HALF_UP))
    except (ArithmeticError, ValueError):
        return INVALID_NS
