"""Folder in which the processes of a command meet without communication, in their first bundle."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from traceadvisor.frozen import frozen
from traceadvisor.recording.bundle_writer import amend
from traceadvisor.system.processes import understood, written


class Trains(msgspec.Struct, frozen=True):
    """Note that a process leaves when it has trained one step."""

    folder: str
    """The bundle, as the user knows it."""

    host: str
    rank: int


class Result(msgspec.Struct, frozen=True):
    """Summary that a training process leaves for the end of the command."""

    folder: str
    place: str
    """The same as an absolute path."""

    host: str
    pid: int
    rank: int
    steps: int
    recorded_steps: int
    note: str
    """The most important remark; empty without one."""

    problem: str | None
    """Why nothing was written."""

    loss: str | None
    """Why a part is missing."""


_Left = TypeVar("_Left", Trains, Result)


@frozen
class TrainedChildren:
    """Recordings of the child processes that train."""

    results: tuple[Result, ...]
    """By folder and rank."""

    killed: tuple[str, ...]
    """Bundles of processes that ended without a result."""

    failures: tuple[str, ...]
    """Why child processes could not be captured."""


def numbered(folder: Path, number: int) -> Path:
    """The bundle of a job of the command, by its number from 1."""
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


@frozen
class Rendezvous:
    """The folder in which the processes of a command leave marks for one another."""

    place: Path

    def is_first(self, mark: str) -> bool:
        """Whether this process is the first to leave a mark."""
        try:
            self._make()
            with (self.place / mark).open("x"):
                return True
        except FileExistsError:
            return False
        except OSError:  # such as a temporary folder that cannot be written to: then all are first
            return True

    def number_of(self, job: str, rank: int, is_taken: Callable[[int], bool]) -> int:
        """The number of a job in the command, from 1: the ranks of one job get the same number, other jobs others.

        A command may train several times, one after the other or side by side.

        ``rank``: the rank of this process in it. ``is_taken``: whether the bundle of a number belongs to another job,
        or has this rank already.
        """
        number = 1
        while is_taken(number) or not (self._is_job(number, job) and self.is_first(f"job{number}.rank{rank}")):
            number += 1
        return number

    def make(self) -> None:
        """Create the folder, if that is possible."""
        with suppress(OSError):
            self._make()

    def joined(self) -> bool:
        """Whether a process has trained."""
        return any(self.place.glob("trains.*"))

    def join(self, trains: Trains) -> None:
        """This process trains."""
        with suppress(OSError):
            self._make()
            (self.place / f"trains.{trains.host}.{os.getpid()}").write_text(written(trains))

    def leave(self, result: Result) -> None:
        """Leave the result of this process."""
        (self.place / f"result.{result.host}.{result.pid}").write_text(written(result))

    def end(self) -> TrainedChildren:
        """Return what the training processes left, and remove the folder."""
        failures = sorted({path.read_text() for path in self.place.glob("failed.*")})
        found = TrainedChildren(tuple(self._results()), self._killed(), tuple(failures))
        self.remove()
        return found

    def exited(self, pid: int, code: int) -> None:
        """A process of the command ended with an exit code, which it could not see itself."""
        with suppress(OSError):
            for one in self._results():
                if one.pid == pid and code > 0:
                    amend(Path(one.place), one.host, one.rank, code)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.place, ignore_errors=True)

    def _make(self) -> None:
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _is_job(self, number: int, job: str) -> bool:
        """Whether a number belongs to a job; the first that asks gets it."""
        mark, name = self.place / f"job{number}", sha256(os.fsencode(job)).hexdigest()
        try:
            self._make()
            mark.symlink_to(name)  # a link appears with its content, also between nodes; it points nowhere
        except FileExistsError:
            return mark.readlink() == Path(name)
        except OSError:  # such as a file system without links: then all are the first job
            return True
        return True

    def _results(self) -> list[Result]:
        found = (_decoded(path, Result) for path in self.place.glob("result.*"))
        return sorted((one for one in found if one), key=lambda one: (one.folder, one.rank))

    def _killed(self) -> tuple[str, ...]:
        """The bundles of processes that left no result."""
        done = {f"trains.{one.host}.{one.pid}" for one in self._results()}
        silent = (_decoded(path, Trains) for path in self.place.glob("trains.*") if path.name not in done)
        return tuple(sorted({one.folder for one in silent if one}))


def _decoded(path: Path, kind: type[_Left]) -> _Left | None:
    """Content that a process left; None if it was killed while it wrote it."""
    try:
        return understood(path.read_bytes(), kind)
    except (OSError, ValueError):  # also for bytes that are not UTF-8
        return None
