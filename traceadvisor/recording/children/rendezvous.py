"""Where the processes of a command meet without communication: a folder of their node."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from traceadvisor.bundle.layout import MANIFEST

_RANK = re.compile(r"job(\d+)\.rank(\d+)")


class Result(msgspec.Struct, frozen=True):
    """What a training process leaves for the end of the command."""

    folder: str
    rank: int
    steps: int
    recorded_steps: int
    note: str
    """The most important remark; empty without one."""

    problem: str | None


@dataclass(frozen=True, slots=True)
class TrainedChildren:
    """What child processes that train recorded."""

    results: tuple[Result, ...]
    """By folder and rank."""

    killed: tuple[str, ...]
    """Bundles of processes that ended without a result."""

    failures: tuple[str, ...]
    """Why child processes could not be captured."""


def numbered(folder: Path, number: int) -> Path:
    """The bundle of a job of the command, by its number from 1."""
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


@dataclass(frozen=True, slots=True)
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

    def number_of(self, job: str, rank: int) -> int:
        """The number of a job in the command, from 1: the ranks of one job get the same number, other jobs others.

        A command may train several times, one after the other or side by side.
        """
        number = 1
        with suppress(OSError):  # such as a temporary folder without links: then all are the first job
            while not (self._is_job(number, job) and self.is_first(f"job{number}.rank{rank}")):
                number += 1
        return number

    def leave(self, result: Result) -> None:
        """Leave the result of this process."""
        (self.place / f"result.{os.getpid()}").write_bytes(msgspec.json.encode(result))

    def joined(self) -> list[tuple[int, int]]:
        """Number of the job and rank of every process that trained."""
        found = (_RANK.fullmatch(path.name) for path in self.place.glob("job*.rank*"))
        return sorted((int(match[1]), int(match[2])) for match in found if match)

    def end(self, folder: Path) -> TrainedChildren:
        """Return what the training processes left, and remove the folder.

        Args:
            folder: the first bundle of the command, as the user knows it.
        """
        found = TrainedChildren(tuple(self._results()), self._killed(folder), self._failures())
        self.remove()
        return found

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.place, ignore_errors=True)

    def _make(self) -> None:
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _is_job(self, number: int, job: str) -> bool:
        """Whether a number belongs to a job; the first that asks gets it."""
        mine, mark = self.place / f"claim{number}.{os.getpid()}", self.place / f"job{number}"
        self._make()
        mine.write_text(job)
        try:
            mark.hardlink_to(mine)  # the name appears with its content
        except FileExistsError:
            return mark.read_text() == job
        finally:
            mine.unlink()
        return True

    def _results(self) -> list[Result]:
        found = [msgspec.json.decode(path.read_bytes(), type=Result) for path in self.place.glob("result.*")]
        return sorted(found, key=lambda one: (one.folder, one.rank))

    def _killed(self, folder: Path) -> tuple[str, ...]:
        told = {(one.folder, one.rank) for one in self._results()}
        bundles = ((str(numbered(folder, number)), rank) for number, rank in self.joined())
        silent = (bundle for bundle, rank in bundles if (bundle, rank) not in told)
        return tuple(dict.fromkeys(bundle for bundle in silent if Path(bundle, MANIFEST).exists()))

    def _failures(self) -> tuple[str, ...]:
        return tuple(sorted({path.read_text() for path in self.place.glob("failed.*")}))
