"""Tells recordings from scrubbed copies: scrubbing a copy again changes nothing but numbers."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from traceadvisor.bundle.folder import is_bundle
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.discovery import begins_like_a_trace, is_snapshot
from traceadvisor.parsing.input_bytes import open_bytes
from traceadvisor.scrubbing.bundle import scrub

_CHANGING = re.compile(rb"\b(folder|host|device|user|argument|track|code)\d+|\"\w+\":\s*null,|\s+")


def recording_of(file: Path) -> Path | None:
    """The trace or snapshot that a file is, or the folder of its capture; None for another file.

    Raises:
        OSError: the file cannot be read.
    """
    if is_bundle(file.parent):
        return file.parent
    return file if begins_like_a_trace(file) or is_snapshot(file) else None


def is_scrubbed(recording: Path, limits: Limits = LIMITS) -> bool:
    """Whether a recording is a copy that ``traceadvisor scrub`` wrote, as far as its content tells.

    Raises:
        InputError: it cannot be read.
    """
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        scrub(recording, copy, limits=limits)
        return _contents(recording, limits) == _contents(copy, limits)


def _contents(recording: Path, limits: Limits) -> list[bytes]:
    """The unpacked files of a recording, without the numbers of names and without spaces."""
    files = [path for path in recording.iterdir() if path.is_file()] if recording.is_dir() else [recording]
    return sorted(_CHANGING.sub(rb"\1", _unpacked(path, limits)) for path in files)


def _unpacked(path: Path, limits: Limits) -> bytes:
    with open_bytes(path, limits) as stream:
        return b"".join(stream.pieces())
