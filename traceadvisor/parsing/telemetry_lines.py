"""The lines of a telemetry file, one JSON object each."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from traceadvisor.errors import InputError

LONGEST_LINE_BYTES = 1 << 20
LARGEST_FILE_BYTES = 1 << 30

EXPECTED = "telemetry as a capture writes it (telemetry.<host>.jsonl)"
REMEDY = "Give the folder that `traceadvisor capture` wrote, or capture the run again."


@dataclass(slots=True)
class Lines:
    """Reads a file's objects, and counts what is none."""

    path: Path
    dropped: int = 0
    """Lines that are no JSON object."""

    truncated: bool = False
    """The file ends in the middle of a line."""

    cut: bool = False
    """The file is larger than is read."""

    def __iter__(self) -> Iterator[dict[str, object]]:
        """The objects in the order of the file.

        Raises:
            InputError: the file is missing, not a regular file, unreadable or empty.
        """
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise InputError(self.path, "is not a regular file", expected=EXPECTED, remedy=REMEDY)
            if status.st_size == 0:
                raise InputError(self.path, "the file is empty", expected=EXPECTED, remedy=REMEDY)
            with self.path.open("rb") as file:
                yield from self._objects(file)
        except OSError as error:
            found = f"cannot be read ({error.strerror or error})"
            raise InputError(self.path, found, expected=EXPECTED, remedy=REMEDY) from error

    def _objects(self, file: BinaryIO) -> Iterator[dict[str, object]]:
        while line := file.readline(LONGEST_LINE_BYTES):
            whole = line.endswith(b"\n")
            found = decode(line) if whole or len(line) < LONGEST_LINE_BYTES else None
            if found is not None:
                yield found
            elif whole or len(line) == LONGEST_LINE_BYTES:
                self.dropped += bool(line.strip())
                _skip_to_line_end(file, line)
            else:
                self.truncated = True
            if file.tell() > LARGEST_FILE_BYTES:
                self.cut = True
                return


def decode(line: bytes) -> dict[str, object] | None:
    """The object that a line holds; a bare ``NaN`` or ``Infinity`` in it is null. None where there is none."""
    try:
        found = msgspec.json.decode(line)
    except (ValueError, RecursionError):  # msgspec's own error and that of bytes that are no UTF-8
        try:
            found = json.loads(line.decode(errors="replace"), parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _skip_to_line_end(file: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = file.readline(LONGEST_LINE_BYTES)
