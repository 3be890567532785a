"""Reads the first bytes of a recording, and what they say of it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from traceadvisor.errors import InputError
from traceadvisor.frozen import frozen
from traceadvisor.parsing.input_bytes import open_bytes, state_of

BEGINNING_BYTES = 1 << 16
"""Torch writes what a file says of its process before the events."""

_MOST_FILES = 1 << 14
"""Files whose beginning is kept in mind: a log folder is listed again each time that a recording is written."""

_OF_A_JOB = re.compile(rb'"distributedInfo"\s*:\s*\{')
_RANK, _SIZE = (re.compile(rb'"%s"\s*:\s*(\d{1,9})' % name) for name in (b"rank", b"world_size"))


@frozen
class StatedRank:
    """The place of a process in its job, as the recording states it; None for what it does not."""

    rank: int | None
    world_size: int | None


def first_bytes(path: Path, count: int = BEGINNING_BYTES) -> bytes | None:
    """The first bytes of a file's content, unpacked; None if it is empty or cannot be read."""
    buffer = bytearray(count)
    try:
        with open_bytes(path) as stream:
            return bytes(buffer[: stream.readinto(memoryview(buffer))]) or None
    except InputError:
        return None


def stated_rank(path: Path) -> StatedRank:
    """The rank that a recording states, by its first bytes; a file that did not change is read once."""
    try:
        return _stated_rank(path, state_of(path.stat()))
    except OSError:
        return StatedRank(None, None)


@lru_cache(_MOST_FILES)
def _stated_rank(path: Path, _: tuple[int, ...]) -> StatedRank:
    begin = first_bytes(path) or b""
    if not (job := _OF_A_JOB.search(begin)):
        return StatedRank(None, None)
    rank, size = _RANK.search(begin, job.end()), _SIZE.search(begin, job.end())
    return StatedRank(int(rank[1]) if rank else None, int(size[1]) if size else None)
