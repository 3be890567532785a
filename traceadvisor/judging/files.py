"""Trace files to all that a report says of them, each read and judged in one go, several at the same time.

A trace takes twenty times the memory of its judgement and more. It never leaves the process that reads it, so a report
takes the memory of the traces that are read at the same time, however many there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from traceadvisor.bundle.folder import read_run
from traceadvisor.bundle.layout import MANIFEST
from traceadvisor.errors import InputError
from traceadvisor.facts import Facts
from traceadvisor.judging.engine import Judgement, judge
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.run import Run
from traceadvisor.model.trace import MOST_DEVICES, Origin, Trace
from traceadvisor.parsing.trace_file import nothing_recorded, read_trace
from traceadvisor.rules.base import Rule
from traceadvisor.system.cores import usable_cores
from traceadvisor.system.executor import Died, Outcome, Tell, Watch, one_by_one, side_by_side

Progress = Callable[[Origin, int, int], None]
"""Called as files are read: which, how many bytes of it were read so far, and how many it has.

Once with 0 for each file before the first is read, and at last with all of it, whatever came of it; always in the
thread that asked.
"""

PAYING_BYTES = 2 << 20
"""Of packed input; about what is read in the time that a process takes to start."""

_GZIP_RATIO = 20
"""Traces pack 18 to 30 times."""

_ENOUGH_MEMORY = "memory for every file that is read at the same time"
_READ_FEWER = "Read fewer at once (--processes 1), or on a machine with more memory."


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file to be read."""

    origin: Origin
    id: str
    """Of the recording in it; where it holds several devices, what their ids begin with."""

    @property
    def size_bytes(self) -> int:
        """As it lies on disk; 0 where it cannot be asked, which is told when it is read."""
        try:
            return self.origin.path.stat().st_size
        except OSError:
            return 0


@dataclass(frozen=True, slots=True, eq=False)
class JudgedFile:
    """All that a report says of a file."""

    health: Health
    judgements: tuple[Judgement, ...]
    """One a device."""


@dataclass(frozen=True, slots=True)
class FileJudge:
    """Reads files and judges them by some rules."""

    rules: tuple[Rule, ...]
    limits: Limits = LIMITS
    _runs: dict[tuple[Path, int | None], tuple[Run, tuple[HealthNote, ...]]] = field(default_factory=dict, init=False)

    def __call__(self, file: NamedFile, tell: Tell) -> JudgedFile:
        """All there is to say of a file; ``tell`` takes how many bytes of it were read.

        Raises:
            InputError: it cannot be read.
        """
        try:
            trace = _trace(file.origin, tell, self.limits)
            return JudgedFile(trace.health, tuple(judge(facts, self.rules) for facts in self._facts(file, trace)))
        except MemoryError as error:
            raise InputError(
                file.origin.path, "reading it took all the memory there is", expected=_ENOUGH_MEMORY, remedy=_READ_FEWER
            ) from error

    def _facts(self, file: NamedFile, trace: Trace) -> Iterator[Facts]:
        """A recording is one trace and one device; a trace without device activity is one recording."""
        devices: tuple[int | None, ...] = trace.device_indices or (None,)
        run, notes = self._run(file.origin)
        trace = replace(trace, own_code=run.settings.own_code if run else None)
        if len(devices) > MOST_DEVICES:
            said = f"The file tells of {len(devices)} devices: only the first {MOST_DEVICES} are shown."
            notes = (*notes, HealthNote("devices-left-out", said))
        for device in devices[:MOST_DEVICES]:
            yield Facts(trace, device, file.id if len(devices) == 1 else f"{file.id}/device{device}", run, notes)

    def _run(self, origin: Origin) -> tuple[Run | None, tuple[HealthNote, ...]]:
        """What a capture knows beside the recording; several recordings of a rank share it."""
        if origin.bundle is None:
            return None, ()
        key = origin.bundle, origin.rank
        if key not in self._runs:
            self._runs[key] = read_run(*key)
        return self._runs[key]


def judge_files(
    files: Sequence[NamedFile], rules: tuple[Rule, ...], progress: Progress, processes: int, limits: Limits = LIMITS
) -> list[Outcome[JudgedFile]]:
    """The judgement of each file, or why there is none: an InputError, or a Fault of this program.

    Args:
        files: what to read.
        rules: what to judge by.
        progress: told of every file.
        processes: how many files to read at the same time, each in a process of its own. One file, or one at a time, is
            read in this process, and so is everything where the system is not of the Unix kind.
        limits: how much of a file to read.
    """
    sizes_bytes = [file.size_bytes for file in files]
    watch = Watch(
        lambda position, read_bytes: progress(files[position].origin, read_bytes, sizes_bytes[position]),
        lambda position: progress(files[position].origin, sizes_bytes[position], sizes_bytes[position]),
    )
    for position in range(len(files)):
        watch.advanced(position, 0)
    judge_file = FileJudge(rules, limits)
    if min(processes, len(files)) > 1 and os.name == "posix":
        outcomes = side_by_side(judge_file, files, watch, processes=processes, weights=sizes_bytes)
    else:
        outcomes = one_by_one(judge_file, files, watch)
    return [_in_words(outcome, file) for outcome, file in zip(outcomes, files, strict=True)]


def paying_processes(files: Iterable[NamedFile]) -> int:
    """As many as there are cores for, each with more to do than to start."""
    packed_bytes = sum(file.size_bytes // (1 if file.origin.path.suffix == ".gz" else _GZIP_RATIO) for file in files)
    return max(min(usable_cores(), packed_bytes // PAYING_BYTES), 1)


def _in_words(outcome: Outcome[JudgedFile], file: NamedFile) -> Outcome[JudgedFile]:
    """The death of a process as an error about its file."""
    if not isinstance(outcome, Died):
        return outcome
    found = f"the process that read it {outcome}"
    return InputError(file.origin.path, found, expected=_ENOUGH_MEMORY, remedy=_READ_FEWER)


def _trace(origin: Origin, tell: Tell, limits: Limits) -> Trace:
    """The trace; one of a capture that cannot be read is empty, for what was captured beside it is known."""
    if origin.path.name == MANIFEST:
        return nothing_recorded(origin)
    try:
        return read_trace(origin, tell, limits)
    except InputError as error:
        if origin.bundle is None:
            raise
        return replace(nothing_recorded(origin), health=Health(notes=(HealthNote("unreadable", str(error)),)))
