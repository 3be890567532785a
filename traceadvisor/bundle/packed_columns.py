"""Columns of integers in few bytes: a run may have millions of steps. Without numpy, which a script may lack."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from itertools import accumulate
from operator import sub

_FASTEST = 1
_WINDOW, _MEMORY = 15, 8
"""The defaults of zlib."""

_BYTES = 8


def packed(columns: Sequence[Sequence[int]]) -> bytes:
    """The changes within each of some columns of one length, compressed."""
    by_runs = zlib.compressobj(_FASTEST, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_RLE)  # high bytes are mostly zeros
    parts = (part for column in columns for part in _by_place(_changes(column)))
    return by_runs.compress(b"".join(parts)) + by_runs.flush()


def unpacked(content: bytes, count: int) -> list[list[int]]:
    """The columns, as they were; ``count``: their length."""
    parts = memoryview(zlib.decompress(content))
    size = count * _BYTES
    return [list(accumulate(_joined(parts[at : at + size]))) for at in range(0, len(parts), size)]


def _changes(column: Sequence[int]) -> array[int]:
    first = column[0]
    if column.count(first) == len(column):
        return array("q", [first, *[0] * (len(column) - 1)])
    return array("q", [first, *map(sub, column[1:], column)])


def _by_place(changes: array[int]) -> list[bytes]:
    """The first bytes of all numbers, then the second ones, and so on."""
    content = changes.tobytes()
    return [content[place::_BYTES] for place in range(_BYTES)]


def _joined(parts: memoryview) -> array[int]:
    count = len(parts) // _BYTES
    content = bytearray(len(parts))
    for place in range(_BYTES):
        content[place::_BYTES] = parts[place * count : (place + 1) * count]
    return array("q", bytes(content))
