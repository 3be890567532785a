"""Files that stay readable when the process is killed or the disk is full."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class GrowingFile:
    """Appends records without a buffer: what was appended survives the death of the process.

    A record that cannot be written whole is removed again.
    """

    def __init__(self, path: Path) -> None:
        """Create the file, or replace it; raises OSError if that fails. It may be renamed later.

        What a link in its place leads to stays as it is.
        """
        with suppress(FileNotFoundError):
            path.unlink()
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._size = 0

    def append(self, records: bytes) -> None:
        """Append records; raises OSError if they cannot be written whole."""
        if self._descriptor is None:
            raise ValueError("the file is closed")
        rest, place = memoryview(records), self._size
        try:
            while rest:
                written = os.pwrite(self._descriptor, rest, place)
                rest, place = rest[written:], place + written
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size = place

    def leave_to_parent(self) -> None:
        """Let go of the file in a forked child, which holds a copy of its descriptor."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor, inheritable=False)  # not closed: the number would be used again
            os.close(nowhere)

    def close(self) -> None:
        """Close the file; a second call changes nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):  # network file systems report late errors here
                os.close(descriptor)


@contextmanager
def removed_on_error(path: Path) -> Iterator[Path]:
    """Leave no part of a file that could not be written: the script may need the space."""
    try:
        yield path
    except BaseException:
        path.unlink(missing_ok=True)
        raise
