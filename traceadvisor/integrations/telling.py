"""A process that works for another one tells it how far it is, in lines of JSON on standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from traceadvisor.model.trace import Origin

_PAUSE_S = 0.2
"""Between two reports on the progress."""


class ReadingTold:
    """Tells the bytes read of all files."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._read: dict[Path, int] = {}
        self._told_s = 0.0

    @classmethod
    def of(cls, files: Iterable[Path]) -> ReadingTold:
        """The progress on these files; one that is named twice is read once."""
        return cls(sum({str(file): file.stat().st_size for file in files}.values()))

    def __call__(self, origin: Origin, read_bytes: int, _size_bytes: int) -> None:
        """Take the progress of a file."""
        self._read[origin.path] = read_bytes
        now, read = time.monotonic(), sum(self._read.values())
        if now - self._told_s >= _PAUSE_S or read >= self._size_bytes:
            self._told_s = now
            tell(read=read, total=self._size_bytes)


def tell(**what: object) -> None:
    """Tell something."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.flush()
