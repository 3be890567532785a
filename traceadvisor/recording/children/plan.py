"""What a capture tells its child processes, in their environment, and how they meet without communication."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from traceadvisor.bundle.layout import MANIFEST, Schedule
from traceadvisor.recording.options import CaptureOptions

_LONGEST_COMMAND = 16_384
"""Characters. Linux limits a variable to 128 KiB."""

VARIABLE = "TRACEADVISOR_CAPTURE"
PYTHONPATH = "PYTHONPATH"
_RANK = re.compile(r"job(\d+)\.rank(\d+)")
HOOK = str(Path(__file__).with_name("hook"))


class Plan(msgspec.Struct, frozen=True):
    """The value of the environment variable, as JSON."""

    started_ns: int
    """Start of the command: the same in all its processes."""

    folder: str
    """The first bundle, as an absolute path."""

    shown: str
    """The same as the user knows it."""

    meeting: str
    """A folder of this node in which the processes of the command leave marks for one another."""

    command: tuple[str, ...]
    schedule: Schedule
    stacks: bool
    memory: bool
    shapes: bool
    keep_arguments: bool

    @property
    def options(self) -> CaptureOptions:
        """The options of the capture."""
        return CaptureOptions(
            self.schedule,
            stacks=self.stacks,
            memory=self.memory,
            shapes=self.shapes,
            keep_arguments=self.keep_arguments,
            folder=Path(self.folder),
        )


class Result(msgspec.Struct, frozen=True):
    """What a training process leaves for the end of the command."""

    folder: str
    rank: int
    steps: int
    recorded_steps: int
    note: str
    """The most important remark; empty without one."""

    problem: str | None


def new_plan(options: CaptureOptions, command: tuple[str, ...], started_ns: int, folder: Path) -> Plan:
    """The plan of a command."""
    return Plan(
        started_ns=started_ns,
        folder=str(folder.absolute()),
        shown=str(folder),
        meeting=str(Path(tempfile.gettempdir()) / f"traceadvisor-{secrets.token_hex(8)}"),
        command=tuple(_bounded(command)),
        schedule=options.schedule,
        stacks=options.stacks,
        memory=options.memory,
        shapes=options.shapes,
        keep_arguments=options.keep_arguments,
    )


def _bounded(command: tuple[str, ...]) -> Iterator[str]:
    """The beginning of a command that fits an environment variable, as valid UTF-8."""
    left = _LONGEST_COMMAND
    for word in command:
        text = word.encode(errors="replace").decode()
        left -= len(text)
        if left < 0:
            yield "..."
            return
        yield text


def exported(plan: Plan, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that children need: the plan, and a path on which Python finds the hook."""
    others = environment.get(PYTHONPATH)
    return {
        VARIABLE: msgspec.json.encode(plan).decode(),
        PYTHONPATH: HOOK if not others else f"{HOOK}{os.pathsep}{others}",
    }


def plan_of(environment: Mapping[str, str] = os.environ) -> Plan | None:
    """The plan that this process was started with; None without one."""
    value = environment.get(VARIABLE)
    return None if value is None else msgspec.json.decode(value.encode(), type=Plan)


def withdraw(environment: MutableMapping[str, str] = os.environ) -> None:
    """Take the plan out of the environment: processes started from now on are not captured."""
    environment.pop(VARIABLE, None)
    places = environment.get(PYTHONPATH)
    if places is not None:
        rest = os.pathsep.join(place for place in places.split(os.pathsep) if place != HOOK)
        if rest:
            environment[PYTHONPATH] = rest
        else:
            del environment[PYTHONPATH]


def numbered(folder: Path, number: int) -> Path:
    """The bundle of a job of the command, by its number from 1."""
    return folder if number == 1 else folder.with_name(f"{folder.name}-{number}")


@dataclass(frozen=True, slots=True)
class Meeting:
    """The folder in which the processes of a command leave marks for one another."""

    place: Path

    def is_first(self, mark: str) -> bool:
        """Whether this process is the first to leave a mark."""
        self._make()
        try:
            with (self.place / mark).open("x"):
                return True
        except FileExistsError:
            return False

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

    def results(self) -> list[Result]:
        """The results of all training processes, by folder and rank."""
        found = [msgspec.json.decode(path.read_bytes(), type=Result) for path in self.place.glob("result.*")]
        return sorted(found, key=lambda one: (one.folder, one.rank))

    def joined(self) -> list[tuple[int, int]]:
        """Number of the job and rank of every process that trained."""
        found = (_RANK.fullmatch(path.name) for path in self.place.glob("job*.rank*"))
        return sorted((int(match[1]), int(match[2])) for match in found if match)

    def killed(self, folder: Path) -> tuple[str, ...]:
        """Bundles of training processes that ended without a result.

        Args:
            folder: the first bundle of the command, as the user knows it.
        """
        told = {(one.folder, one.rank) for one in self.results()}
        bundles = ((str(numbered(folder, number)), rank) for number, rank in self.joined())
        silent = (bundle for bundle, rank in bundles if (bundle, rank) not in told)
        return tuple(dict.fromkeys(bundle for bundle in silent if Path(bundle, MANIFEST).exists()))

    def failures(self) -> list[str]:
        """Why child processes could not be captured."""
        return sorted({path.read_text() for path in self.place.glob("failed.*")})

    def end(self) -> None:
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
