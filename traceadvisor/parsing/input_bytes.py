"""Read the bytes of a trace file, plain or gzipped, as a stream."""

from __future__ import annotations

import gzip as patient_gzip
import io
import os
import stat
import zlib as patient_zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from traceadvisor.errors import InputError
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.exceeded_limits import ExceededLimit
from traceadvisor.parsing.xplane import XPLANE, chrome_json

try:
    gzip, zlib = import_module("isal.igzip"), import_module("isal.isal_zlib")
except ImportError:  # no wheel for this platform: several times slower, same bytes
    gzip, zlib = import_module("gzip"), import_module("zlib")

GZIP_MAGIC = b"\x1f\x8b"

_PIECE_BYTES = 1 << 20

HEAD_BYTES = 1 << 12
"""First bytes that are kept to recognise files of other programs."""

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, patient_zlib.error)
"""Errors of reading a truncated or damaged gzip file."""


RATIO_COUNTS_FROM_BYTES = 16 << 20
"""The ratio is checked beyond this size only: small regular files can have high ratios, and do no harm."""


class ByteStream:
    """Reads into a buffer; stops at damaged gzip data or at a limit, after delivering everything before it."""

    def __init__(
        self,
        raw: io.BufferedIOBase,
        *,
        packed: io.BufferedIOBase | None = None,
        reopen: Callable[[], io.BufferedIOBase] | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        """Read from a stream of bytes.

        ``packed``: the file that ``raw`` decompresses, if any. ``reopen``: opens the same stream with a reader that
        delivers every byte before the damage.
        """
        self._raw = raw
        self._packed = packed
        self._file = packed or raw
        self._size = _size_of(self._file)
        self._reopen = reopen
        self._limits = limits
        self.delivered = 0
        """Bytes read so far, decompressed."""

        self.head = b""
        """The first bytes."""

        self.damaged = False
        self.excess: ExceededLimit | None = None
        """The limit that ended the reading."""

    @property
    def ended_early(self) -> bool:
        """Whether bytes are missing."""
        return self.damaged or self.excess is not None

    @property
    def is_growing(self) -> bool:
        """Whether the file changed size since it was opened: something is still writing it."""
        return _size_of(self._file) != self._size

    @property
    def file_state(self) -> tuple[int, ...]:
        """The same for the same content: see :func:`state_of`."""
        return state_of(os.fstat(self._file.fileno()))

    @property
    def file_position(self) -> int:
        """Bytes read of the file itself."""
        return self._file.tell()

    @property
    def failed_attempts(self) -> int:
        """How often the connection to a file elsewhere failed and was made again."""
        return getattr(getattr(self._file, "raw", None), "failed_attempts", 0)

    def end_with(self, *, is_damaged: bool, excess: ExceededLimit | None) -> None:
        """Take over how another stream of the same file ended."""
        self.damaged, self.excess = is_damaged, excess

    def readinto(self, buffer: memoryview) -> int:
        """Fill the buffer and return the number of bytes read; 0 at the end."""
        filled = 0
        while filled < len(buffer) and not self.ended_early:
            try:
                count = self._raw.readinto1(buffer[filled:])
            except DAMAGED:
                self.damaged = not self._start_over()
                continue
            if not count:
                break
            if not self.delivered:
                self.head = bytes(buffer[: min(count, HEAD_BYTES)])
            filled += count
            self.delivered += count
            self.excess = self._exceeded()
        return filled

    def pieces(self) -> Iterator[bytes]:
        """The rest of the stream, a megabyte at a time."""
        buffer = memoryview(bytearray(_PIECE_BYTES))
        while count := self.readinto(buffer):
            yield bytes(buffer[:count])

    def _exceeded(self) -> ExceededLimit | None:
        if self.delivered > self._limits.inflated_bytes:
            return ExceededLimit.BYTES
        if self._packed is None or self.delivered < RATIO_COUNTS_FROM_BYTES:
            return None
        return ExceededLimit.RATIO if self.delivered > self._limits.inflation_ratio * self._packed.tell() else None

    def _start_over(self) -> bool:
        """Continue with the other reader where this one stopped; False if there is none or it gets no further."""
        if self._reopen is None:
            return False
        self._raw, self._reopen = self._reopen(), None
        skipped = 0
        try:
            while skipped < self.delivered:
                count = len(self._raw.read1(self.delivered - skipped))
                if not count:  # the file was cut off or emptied meanwhile
                    return False
                skipped += count
        except DAMAGED:
            return False
        return True


@contextmanager
def open_bytes(path: Path, limits: Limits = LIMITS) -> Iterator[ByteStream]:
    """Open a regular file; decompress it if it starts with the gzip magic bytes, and read a profile of XLA as a trace.

    Raises:
        InputError: the file is missing, not a regular file, unreadable or empty, or what reads it is not installed.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(path, "is not a regular file", expected="a trace file", remedy="Pass the file itself.")
        if status.st_size == 0:
            raise InputError(
                path,
                "the file is empty",
                expected="a PyTorch profiler trace",
                remedy="The job was probably killed before the profiler exported; record again.",
            )
        with path.open("rb") as plain:
            head = plain.read(2)
            is_packed = head == GZIP_MAGIC
            plain.seek(0)
            if path.name.endswith(XPLANE) and not is_packed and head[:1] != b"{":  # not a copy by `scrub`
                yield ByteStream(chrome_json(path, plain, limits), packed=plain, limits=limits)
            elif is_packed:
                with gzip.open(plain, "rb") as unpacked:
                    yield ByteStream(unpacked, packed=plain, reopen=lambda: _unpacked_patiently(plain), limits=limits)
            else:
                yield ByteStream(plain, limits=limits)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            path,
            f"cannot be read ({reason})",
            expected="a readable trace file",
            remedy="Check the path and its permissions.",
        ) from error


def state_of(status: os.stat_result) -> tuple[int, ...]:
    """State of a file: device, inode, size in bytes and time of the last change in nanoseconds."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _size_of(file: io.BufferedIOBase) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except io.UnsupportedOperation:  # no file, but bytes in memory
        return 0


def _unpacked_patiently(plain: io.BufferedIOBase) -> io.BufferedIOBase:
    """Return the standard library's gunzip: unlike the fast one it delivers all bytes before the damage."""
    plain.seek(0)
    return patient_gzip.GzipFile(fileobj=plain)
