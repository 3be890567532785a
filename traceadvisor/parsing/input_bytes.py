"""The bytes of a trace file, plain or gzipped, as a stream."""

from __future__ import annotations

import io
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from traceadvisor.errors import InputError

try:
    gzip, zlib = import_module("isal.igzip"), import_module("isal.isal_zlib")
except ImportError:  # no wheel for this platform: several times slower, same bytes
    gzip, zlib = import_module("gzip"), import_module("zlib")

GZIP_MAGIC = b"\x1f\x8b"

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
"""What a truncated or damaged gzip file raises while it is read."""


class ByteStream:
    """Reads into a buffer; a damaged gzip stream ends early instead of raising."""

    def __init__(self, raw: io.BufferedIOBase) -> None:
        self._raw = raw
        self.damaged = False

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer as far as the stream goes; returns the number of bytes, 0 at the end."""
        filled = 0
        while filled < len(buffer) and not self.damaged:
            try:
                count = self._raw.readinto(buffer[filled:])
            except DAMAGED:
                self.damaged = True
                break
            if not count:
                break
            filled += count
        return filled


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
                    yield ByteStream(unpacked)
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
