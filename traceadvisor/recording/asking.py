"""Asks a running training for a recording, and waits for it: see :mod:`.requests`."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from traceadvisor.bundle.layout import MANIFEST, UNFINISHED, FileKind, Manifest, RankProcess
from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.recording.bundle_writer import read_manifest
from traceadvisor.recording.children.plan import PLACE_END
from traceadvisor.recording.requests import ATTACHED, PATIENCE_S
from traceadvisor.system.processes import host_name, start_ticks

_LOOK_S = 0.1

_SILENCE_S = 10.0
"""Time for the answers of other ranks after the first one."""

_LARGEST = 1 << 20
"""Bytes of a request to read: it is a short list of numbers."""

MOST_RANKS = 1 << 16
"""Ranks of a job to look for."""

HOW_TO_START = "Start it with `traceadvisor capture --on-demand`."


@frozen
class Running:
    """A run that records on request."""

    folder: Path
    """Its bundle."""

    places: tuple[Path, ...]
    """The folders in which its processes meet: one, or one for each rank that was captured by itself."""

    def recordings(self) -> frozenset[str]:
        """The names of its recordings so far."""
        found = read_manifest(self.folder)
        return frozenset(one.path for one in found.files if one.kind is FileKind.TRACE) if found else frozenset()

    def ask(self) -> int:
        """Ask for a recording of the next steps; returns the number of the request.

        Raises:
            UsageError: the run has ended, or somebody else has asked and waits.
        """
        number = next(one for one in count(1) if not self._has(one))
        if number > 1 and not (self.is_answered(number - 1) or self.is_given_up(number - 1, PATIENCE_S)):
            raise self._is_asked_already()
        asked = "\n".join(str(one.pid) for one in self._alive()).encode()
        try:
            for place in self.places:
                for earlier in range(1, number):  # before this place was there
                    with suppress(FileExistsError):
                        _write_new(place / f"asked.{earlier}", b"")
                _write_new(place / f"asked.{number}", asked)
        except FileExistsError as error:
            raise self._is_asked_already() from error
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be asked: {error.strerror}. The run may have ended.") from error
        return number

    def _has(self, number: int) -> bool:
        return any(os.path.lexists(place / f"asked.{number}") for place in self.places)

    def _is_asked_already(self) -> UsageError:
        return UsageError(f"A recording of {self.folder} is in progress, for another `record`. Ask again after it.")

    def is_answered(self, number: int) -> bool:
        """Whether each rank of this machine that was asked and still runs has answered a request."""
        return not self.silent(number)

    def is_given_up(self, number: int, after_s: float) -> bool:
        """Whether a rank answered a request so long ago that the silent ones probably make no steps."""
        with suppress(OSError, ValueError):
            answers = (path.stat().st_mtime for place in self.places for path in place.glob(f"answered.{number}.*"))
            return time.time() - min(answers) > after_s
        return False

    def has_begun(self, number: int) -> bool:
        """Whether a rank records for a request, and has not answered it yet."""
        names = {path.name for place in self.places for path in place.glob(f"*.{number}.*")}
        begun = {name.removeprefix("begun.") for name in names if name.startswith("begun.")}
        return bool(begun - {name.removeprefix("answered.") for name in names if name.startswith("answered.")})

    def silent(self, number: int) -> tuple[int, ...]:
        """The ranks of this machine that were asked, still run, and have not answered."""
        answered = {path.name for place in self.places for path in place.glob(f"answered.{number}.*")}
        asked = {pid for place in self.places for pid in _asked(place, number)}
        waits = [one for one in self._alive() if f"answered.{number}.{host_name()}.{one.pid}" not in answered]
        return tuple(sorted(one.rank for one in waits if one.pid in asked or not asked))

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks of the job that have made no step yet, as far as this folder shows."""
        found = read_manifest(self.folder)
        if found is None or any((place / ATTACHED).exists() for place in self.places):
            return ()
        there = {one.rank for one in found.processes}
        return tuple(rank for rank in range(min(found.world_size, MOST_RANKS)) if rank not in there)

    @property
    def is_over(self) -> bool:
        """Whether no rank of it runs any more on this machine."""
        return not any(self._alive())

    def _alive(self) -> Iterator[RankProcess]:
        return _alive(read_manifest(self.folder))


def _asked(place: Path, number: int) -> list[int]:
    """The processes that were asked."""
    with suppress(OSError, ValueError), (place / f"asked.{number}").open("rb") as file:
        return [int(line) for line in file.read(_LARGEST).split()]
    return []


def _write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, whole; raises OSError."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def wait_for(running: Running, number: int, is_time_over: Callable[[], bool]) -> bool:
    """Wait until a request is answered; whether it was, in time.

    Where a rank has answered, and no other one records, the others get :data:`_SILENCE_S` more.
    """
    before = running.recordings()
    while not running.is_over and not is_time_over():
        if running.is_answered(number):
            return True
        is_over = running.is_given_up(number, _SILENCE_S) and not running.has_begun(number)
        if is_over and running.recordings() == before:
            return True
        time.sleep(_LOOK_S)
    return running.is_over


def _alive(found: Manifest | None) -> Iterator[RankProcess]:
    """The processes of the ranks of this machine that still run."""
    for one in found.processes if found else ():
        if one.host == host_name() and (ticks := start_ticks(one.pid)) is not None and ticks == one.start_ticks:
            yield one


def running_in(folder: Path) -> Running:
    """The run that writes into a folder.

    Raises:
        UsageError: it is no capture, has ended, records by its own schedule, or is another user's.
    """
    found = read_manifest(folder)
    if found is None:
        raise UsageError(f"{folder} is no capture, or its training has not made a step yet.")
    named = folder.resolve()  # `.` has no name
    first = named.parent / (named.name.rpartition("-")[0] or named.name)  # of a command with several trainings
    places = dict.fromkeys((*_places(folder), *_places(first)))
    if not any(_alive(found)):
        raise UsageError(f"The run of {folder} has ended, or runs on another machine.")
    held = {place for one in _alive(found) for place in _held_by(one.pid)}
    if held.isdisjoint(places):
        raise UsageError(f"{folder} does not record on request, or is another user's. {HOW_TO_START}")
    return Running(folder, tuple(_owned(place) for place in places if place in held))


def newest_running(runs: Path) -> Running:
    """The newest run in a folder that records on request; raises UsageError without one."""
    found = [folder for folder in _folders(runs) if _places(folder)]
    for folder in sorted(found, key=_time, reverse=True):
        with suppress(UsageError):
            return running_in(folder)
    raise UsageError(f"No run in {runs}{os.sep} records on request. {HOW_TO_START}")


def running_as(pid: int) -> Running | None:
    """The run of a process; None if the process was not started for recording on request.

    Raises:
        UsageError: there is no such process, it is another user's, or it has not trained yet.
    """
    check_own(pid)
    for place in _held_by(pid):
        for folder in (place.parent, *sorted(place.parent.parent.glob(f"{place.parent.name}-*"))):
            found = read_manifest(folder)
            if found and (
                any(pid == one.pid for one in _alive(found)) or all(pid != one.pid for one in found.processes)
            ):
                return running_in(folder)
        raise UsageError(f"Process {pid} has not made a training step yet.")
    return None


def check_own(pid: int) -> None:
    """Raise UsageError unless a process runs and belongs to this user; even root asks no other user's."""
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError as error:
        raise UsageError(f"There is no process {pid}.") from error
    if start_ticks(pid) is None:
        raise UsageError(f"Process {pid} has ended.")
    if owner != os.geteuid():
        raise UsageError(f"Process {pid} belongs to another user.")


def _held_by(pid: int) -> list[Path]:
    """The places that a process of this user holds open."""
    found = []
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                place = link.readlink()
                if place.name.startswith(UNFINISHED) and place.name.endswith(PLACE_END) and place.is_dir():
                    found.append(place)
    return list(dict.fromkeys(found))


def _owned(place: Path) -> Path:
    """The place, which only its owner may change; raises UsageError if that is another user."""
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UsageError(f"{place} belongs to another user, or others may write to it.")
    return place


def _folders(runs: Path) -> list[Path]:
    try:
        return [path for path in runs.iterdir() if (path / MANIFEST).is_file()]
    except OSError:
        return []


def _places(folder: Path) -> list[Path]:
    return [path.resolve() for path in folder.glob(f"{UNFINISHED}*{PLACE_END}")]


def _time(folder: Path) -> int:
    found = read_manifest(folder)
    return found.started_ns if found else 0
