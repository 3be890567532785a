"""Columns of integers in few bytes: a run may have millions of steps. Without numpy, which a script may lack."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from itertools import chain

_FASTEST = 1
_WINDOW, _MEMORY = 15, 8
"""The defaults of zlib."""

_BYTES = 8


Packed = tuple[tuple[int | None, ...], bytes]
"""The value of each column that has only one, and None for the others; these, compressed."""


def packed(columns: Sequence[Sequence[int]]) -> Packed:
    """Pack some columns of one length, whose numbers have as few bytes in use as possible."""
    by_runs = zlib.compressobj(_FASTEST, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_RLE)  # high bytes are mostly zeros
    only = tuple(column[0] if column.count(column[0]) == len(column) else None for column in columns)
    parts = (_by_place(array("q", column)) for column, value in zip(columns, only, strict=True) if value is None)
    return only, by_runs.compress(b"".join(chain.from_iterable(parts))) + by_runs.flush()


def unpacked(content: Packed, count: int) -> list[list[int]]:
    """The columns, as they were; ``count``: their length."""
    only, parts, size = content[0], memoryview(zlib.decompress(content[1])), count * _BYTES
    others = (_joined(parts[at : at + size]).tolist() for at in range(0, len(parts), size))
    return [next(others) if value is None else [value] * count for value in only]


def _by_place(numbers: array[int]) -> list[bytes]:
    """The first bytes of all numbers, then the second ones, and so on."""
    content = numbers.tobytes()
    return [content[place::_BYTES] for place in range(_BYTES)]


def _joined(parts: memoryview) -> array[int]:
    count = len(parts) // _BYTES
    content = bytearray(len(parts))
    for place in range(_BYTES):
        content[place::_BYTES] = parts[place * count : (place + 1) * count]
    return array("q", bytes(content))
