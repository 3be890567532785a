"""What a process makes for the tab: a report on some recordings, or a comparison of two."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path

import msgspec

from traceadvisor import __version__
from traceadvisor.integrations.tensorboard.runs import ALL, NEWEST, Run, shown
from traceadvisor.system.folders import entries_below


class Side(msgspec.Struct, frozen=True):
    """Recordings to read together."""

    name: str
    roots: tuple[bytes, ...]
    """Nothing outside of these folders is read. Paths are bytes: their names need not be UTF-8."""

    paths: tuple[bytes, ...]

    worker: str | None = None
    """A shell pattern."""

    span: str | None = None

    def files(self) -> Iterator[Path]:
        """The files that lie below the roots, in the order of their names."""
        roots = [Path(os.fsdecode(root)) for root in self.roots]
        for path in map(Path, map(os.fsdecode, self.paths)):
            if is_below(path, roots):
                for file in sorted(entries_below(path)) if path.is_dir() else [path]:
                    if file.is_file() and (not file.is_symlink() or is_below(file, roots)):
                        yield file


class Job(msgspec.Struct, frozen=True):
    """A report on one side, or a comparison of two, the base first."""

    sides: tuple[Side, ...]

    def signature(self) -> str:
        """Changes with the job and with the sizes and times of its files; cheap."""
        files = [(ascii(one), one.stat()) for side in self.sides for one in side.files()]
        stats = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
        return hashlib.sha256(f"{self._about()} {stats}".encode()).hexdigest()

    def key(self) -> str:
        """Changes with the job and with the content of its files."""
        digest = hashlib.sha256(self._about().encode())
        for side in self.sides:
            for path in side.files():
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "blake2b").hexdigest()
                digest.update(f"{path!a} {content} ".encode())
        return digest.hexdigest()

    def _about(self) -> str:
        return f"{__version__} {msgspec.json.encode(self).decode()}"


def is_below(path: Path, roots: Iterable[Path]) -> bool:
    """Whether a path really lies below one of some folders; a link may lead anywhere."""
    return any(path.resolve().is_relative_to(root.resolve()) for root in roots)


def side_of(run: Run, worker: str, span: str) -> Side:
    """The recordings of a run that the browser chose."""
    if not run.folders:
        chosen = (os.fsencode(one.path) for one in run.chosen(worker, span))
        return Side(shown(run.name), _encoded(run.roots), tuple(chosen))
    patterns = (None if one in (ALL, NEWEST) else escape(one) for one in (worker, span))
    return Side(shown(run.name), _encoded(run.roots), _encoded(run.folders), *patterns)


def _encoded(paths: Iterable[Path]) -> tuple[bytes, ...]:
    return tuple(map(os.fsencode, paths))
