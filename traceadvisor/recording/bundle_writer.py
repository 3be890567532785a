"""Moves finished files into the bundle and adds them to its manifest; other ranks may do so at the same time.

Files are written in a folder beside the bundle and moved into it when complete. So a killed process leaves a readable
bundle or none, and never damages the part of another rank.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from traceadvisor.bundle.layout import FORMAT, MANIFEST, BundleFile, Manifest, Note, RankEnding, RankStart
from traceadvisor.errors import UsageError

LOCK = ".lock"


@dataclass(slots=True)
class BundleWriter:
    """One rank's access to the bundle."""

    folder: Path
    header: Manifest
    """The part that is equal in all ranks, without endings, files and notes."""

    rank: int
    staging: Path
    """Outside the bundle, on the same file system."""

    start: RankStart | None = None
    """When this rank started; None before it is known."""

    _files: dict[str, BundleFile] = field(default_factory=dict)

    def refuse_foreign(self) -> None:
        """Raise UsageError if the folder holds the bundle of another run, or another program's ``manifest.json``."""
        found = _read(self.folder / MANIFEST)
        if found is None and (self.folder / MANIFEST).exists():
            raise UsageError(f"{self.folder / MANIFEST} is no manifest of a capture. Choose another folder with -o.")
        if found and found.started_ns != self.header.started_ns:
            raise UsageError(f"{self.folder} already holds a capture. Choose another with -o, or remove it.")

    def stage(self, name: str) -> Path:
        """The path at which to write a file before it is published."""
        self.staging.mkdir(parents=True, exist_ok=True)
        return self.staging / name

    def publish(self, files: Sequence[BundleFile], notes: Sequence[Note], ending: RankEnding | None) -> None:
        """Move finished files into the bundle and add them to the manifest; raises OSError if that fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder / LOCK):
            for file in files:
                self.stage(file.path).replace(self.folder / file.path)
                self._files[file.path] = file
            self._enter(tuple(notes), ending)

    def close(self) -> None:
        """Remove files that were not published."""
        shutil.rmtree(self.staging, ignore_errors=True)

    def _enter(self, notes: tuple[Note, ...], ending: RankEnding | None) -> None:
        found = _read(self.folder / MANIFEST) or self.header
        files = {file.path: file for file in found.files} | self._files
        endings = {one.rank: one for one in found.endings} | ({self.rank: ending} if ending else {})
        starts = {one.rank: one for one in found.starts} | ({self.rank: self.start} if self.start else {})
        others = tuple(note for note in found.notes if note.rank != self.rank)
        mine = tuple(msgspec.structs.replace(note, rank=self.rank) for note in notes)
        manifest = msgspec.structs.replace(
            found,
            files=tuple(files[path] for path in sorted(files)),
            endings=tuple(endings[rank] for rank in sorted(endings)),
            starts=tuple(starts[rank] for rank in sorted(starts)),
            notes=tuple(sorted(others + mine, key=lambda note: note.rank or 0)),
        )
        staged = self.stage(MANIFEST)
        staged.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))
        staged.replace(self.folder / MANIFEST)


def _read(path: Path) -> Manifest | None:
    """The manifest; None if there is none in this format."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.format == FORMAT else None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a POSIX lock, which also works between nodes on a network file system."""
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield
