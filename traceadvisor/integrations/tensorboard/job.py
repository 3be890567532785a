"""The work of a process for the tab: a report on some recordings, or a comparison of two."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path

import msgspec

from traceadvisor import __version__
from traceadvisor.indexing.cache import key_of_content, signature_of
from traceadvisor.indexing.runs import ALL, NEWEST, Run, files_in, shown


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
        return files_in(*([Path(os.fsdecode(one)) for one in some] for some in (self.paths, self.roots)))


class Job(msgspec.Struct, frozen=True):
    """A report on one side, or a comparison of two, the base first."""

    sides: tuple[Side, ...]

    def signature(self) -> str:
        """Changes with the job and with the sizes and times of its files; cheap."""
        return signature_of(self._about(), (one for side in self.sides for one in side.files()))

    def key(self) -> str:
        """Changes with the job and with the content of its files."""
        return key_of_content(self._about(), (one for side in self.sides for one in side.files()))

    def _about(self) -> str:
        return f"{__version__} {msgspec.json.encode(self).decode()}"


def side_of(run: Run, worker: str, span: str) -> Side:
    """The recordings of a run that the browser chose."""
    if not run.folders:
        chosen = (os.fsencode(one.path) for one in run.chosen(worker, span))
        return Side(shown(run.name), _encoded(run.roots), tuple(chosen))
    patterns = (None if one in (ALL, NEWEST) else escape(one) for one in (worker, span))
    return Side(shown(run.name), _encoded(run.roots), _encoded(run.folders), *patterns)


def _encoded(paths: Iterable[Path]) -> tuple[bytes, ...]:
    return tuple(map(os.fsencode, paths))
