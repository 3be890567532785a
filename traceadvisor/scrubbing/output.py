"""Writes a copy as a whole or not at all, and never over anything that exists."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from traceadvisor.errors import OutputError
from traceadvisor.parsing.input_bytes import gzip


class Writable(Protocol):
    """Takes bytes."""

    def write(self, content: bytes, /) -> int:
        """Write all of it; returns its length."""


LONGEST_PATH = 200
_FAST = 2
"""Compression level that all gzip libraries have."""


class Checked:
    """A file being written, whose failures are errors of the output: the input is read at the same time."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path

    def write(self, content: bytes) -> int:
        """Write all of it; returns its length."""
        with _errors_of(self._path):
            return self._file.write(content)

    def flush(self) -> None:
        """Write what is buffered."""
        with _errors_of(self._path):
            self._file.flush()


@contextmanager
def new_file(path: Path) -> Iterator[Checked]:
    """Open a new file; it gets its name when it is complete. Creates the folder if it is missing.

    Raises:
        OutputError: the path exists, or cannot be written.
    """
    part = _part(path)
    with _errors_of(path):
        _refuse_existing(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                yield Checked(file, path)
                file.flush()
                os.fsync(file.fileno())
            _name(part, path)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a folder to fill; it gets its name when it is complete. An empty folder may be in its place.

    Raises:
        OutputError: the path exists, or cannot be written.
    """
    part = _part(path)
    with _errors_of(path):
        if not (path.is_dir() and not path.is_symlink() and next(path.iterdir(), None) is None):
            _refuse_existing(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
        try:
            yield part
            part.rename(path)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def file_in(folder: Path, name: str) -> Iterator[Checked]:
    """Open a new file in a new folder.

    Raises:
        OutputError: it cannot be written.
    """
    path = folder / name
    with _errors_of(path):
        file = path.open("xb")
    try:
        yield Checked(file, path)
    finally:
        with _errors_of(path):
            file.close()


@contextmanager
def gzipped(file: Writable) -> Iterator[Writable]:
    """Compress what is written; the result tells neither name nor time."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=_FAST, mtime=0) as packed:
        yield packed


def _part(path: Path) -> Path:
    return path.absolute().parent / f".{path.name[:100]}.{os.urandom(4).hex()}.part"  # of the root, too


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise OutputError(path, "exists", remedy="Move it, or choose another path with -o.")


def _name(part: Path, path: Path) -> None:
    """Give a file its name unless the name is taken."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        _refuse_existing(path)
    except OSError:  # a file system without links
        _refuse_existing(path)
        part.rename(path)


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        shown = str(path)[:LONGEST_PATH]
        found = f"could not be written ({error.strerror or error})"
        raise OutputError(shown, found, remedy="Choose another path with -o.") from error
