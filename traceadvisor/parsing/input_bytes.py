"""The bytes of a trace file, plain or gzipped, as a stream."""

from __future__ import annotations

import gzip as patient_gzip
import io
import stat
import zlib as patient_zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from traceadvisor.errors import InputError

try:
    gzip, zlib = import_module("isal.igzip"), import_module("isal.isal_zlib")
except ImportError:  # no wheel for this platform: several times slower, same bytes
    gzip, zlib = import_module("gzip"), import_module("zlib")

GZIP_MAGIC = b"\x1f\x8b"

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, patient_zlib.error)
"""What a truncated or damaged gzip file raises while it is read."""


class ByteStream:
    """Reads into a buffer; a damaged gzip stream ends early, with all that stands before the damage."""

    def __init__(self, raw: io.BufferedIOBase, *, reopen: Callable[[], io.BufferedIOBase] | None = None) -> None:
        """Read from ``raw``; where that is damaged, from ``reopen()``, which gives every byte before the damage."""
        self._raw = raw
        self._reopen = reopen
        self._delivered = 0
        self.damaged = False

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer as far as the stream goes; returns the number of bytes, 0 at the end."""
        filled = 0
        while filled < len(buffer) and not self.damaged:
            try:
                count = self._raw.readinto1(buffer[filled:])
            except DAMAGED:
                self.damaged = not self._start_over()
                continue
            if not count:
                break
            filled += count
            self._delivered += count
        return filled

    def _start_over(self) -> bool:
        """Go on with the other reader where this one left off; False where there is none or it gets no further."""
        if self._reopen is None:
            return False
        self._raw, self._reopen = self._reopen(), None
        skipped = 0
        try:
            while skipped < self._delivered:
                skipped += len(self._raw.read1(self._delivered - skipped))
        except DAMAGED:
            return False
        return True


@contextmanager
def open_bytes(path: Path) -> Iterator[ByteStream]:
    """Open a regular file, through gunzip where its first bytes say so.

    Raises:
        InputError: the file is missing, not a regular file, unreadable or empty.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(path, "is not a regular file", expected="a trace file", remedy="Name the file itself.")
        if status.st_size == 0:
            raise InputError(
                path,
                "the file is empty",
                expected="a PyTorch profiler trace",
                remedy="The recording was probably killed before it was exported; record again.",
            )
        with path.open("rb") as plain:
            packed = plain.read(2) == GZIP_MAGIC
            plain.seek(0)
            if packed:
                with gzip.open(plain, "rb") as unpacked:
                    yield ByteStream(unpacked, reopen=lambda: _unpacked_patiently(plain))
            else:
                yield ByteStream(plain)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            path,
            f"cannot be read ({reason})",
            expected="a readable trace file",
            remedy="Check the path and its rights.",
        ) from error


def _unpacked_patiently(plain: io.BufferedIOBase) -> io.BufferedIOBase:
    """The standard library's gunzip: unlike the fast one it gives what it unpacked before it meets the damage."""
    plain.seek(0)
    return patient_gzip.GzipFile(fileobj=plain)
