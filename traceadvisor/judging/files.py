"""Reads and judges trace files, several at the same time.

A trace takes at least twenty times the memory of its judgement. It stays in the process that reads it, except that one
large file has two processes. So a report needs memory only for the traces that are read at the same time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from traceadvisor.bundle.layout import MANIFEST
from traceadvisor.bundle.runs import BundleRuns
from traceadvisor.errors import InputError, UsageError
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.judging.engine import Judgement, judge
from traceadvisor.judging.ranks import MOST_IN_FULL, RankRecording, in_full, rank_recording, waits
from traceadvisor.judging.recording import get_ready
from traceadvisor.model.breakdown import Category
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.report import FoundFigures
from traceadvisor.model.run import Run
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import MOST_DEVICES, Origin, Trace
from traceadvisor.parsing.second_part import SecondPart, second_part
from traceadvisor.parsing.trace_file import nothing_recorded, read_trace
from traceadvisor.rules.base import Rule
from traceadvisor.system.cores import usable_cores
from traceadvisor.system.executor import (
    Died,
    Item,
    Outcome,
    Result,
    Tell,
    Watch,
    Work,
    in_order,
    one_by_one,
    side_by_side,
)
from traceadvisor.system.garbage import no_collections
from traceadvisor.system.remote import is_of_this_process, is_remote

if TYPE_CHECKING:
    from traceadvisor.system.cluster import Cluster

Progress = Callable[[Origin, int, int], None]
"""Called with a file, the bytes of it read so far, and its size in bytes.

Each file is first reported with 0 bytes, before any file is read. Finally it is reported with its full size, even if
it could not be read. All calls come from the calling thread.
"""

PAYING_BYTES = 2 << 20
"""Compressed input that is read in about the start-up time of a process."""

_GZIP_RATIO = 20
"""Compression ratio of traces, which is 18 to 30."""

_BESIDES_BYTES = 40_000
"""Compressed input that is read in the time that a file takes besides, however small it is."""

SPLIT_BYTES = 12 << 20
"""Compressed size from which reading the second half in another process saves more time than starting that takes."""

_ENOUGH_MEMORY = "enough memory for all files that are read at the same time"
_READ_FEWER = "Read fewer files at once (--processes 1), or use a machine with more memory."


@frozen
class NamedFile:
    """A file to read."""

    origin: Origin
    id: str
    """Id of its recording; the prefix of the ids if it contains several devices."""

    is_of_many: bool = False
    """Whether only the figures of its rank are read, if it is of a job of more than `MOST_IN_FULL` ranks."""

    @property
    def size_bytes(self) -> int:
        """Size on disk; 0 if stat fails. Reading the file then reports the error."""
        try:
            return self.origin.path.stat().st_size
        except OSError:
            return 0

    @property
    def packed_bytes(self) -> int:
        """Size on disk, of a plain file about its size if it were compressed."""
        return self.size_bytes // (1 if self.origin.path.suffix == ".gz" else _GZIP_RATIO)


@frozen(eq=False)
class JudgedFile:
    """Everything that a report shows of a file."""

    health: Health
    judgements: tuple[Judgement, ...]
    """One per device; empty for a rank of many."""

    ranks: tuple[RankRecording, ...] = ()
    """Figures of a rank of many, less than 100 kB."""

    @property
    def compared(self) -> Iterator[RankRecording]:
        """The figures for a comparison of ranks."""
        yield from self.ranks
        yield from (one.rank for one in self.judgements if one.rank)


@frozen
class FileJudge:
    """Reads files and runs rules on them."""

    rules: tuple[Rule, ...]
    limits: Limits = LIMITS
    with_another: bool = False
    """Whether another process helps with a large file."""

    in_detail: bool = True
    """Whether recordings get what a page shows of few: tables, the trace of a step, origins and evidence."""

    rank_waits: Mapping[str, SpanSet] = field(default_factory=dict)
    """Time in which each recording's collectives only wait for other ranks, by its id, where it is known."""

    _bundles: dict[Path, BundleRuns] = field(default_factory=dict, init=False)

    def __call__(self, file: NamedFile, tell: Tell) -> JudgedFile:
        """Read and judge a file; ``tell`` receives the number of bytes read.

        Raises:
            InputError: the file cannot be read.
        """
        try:
            if file.packed_bytes < _BESIDES_BYTES:
                with no_collections():  # its objects are few: after it is soon enough
                    return self._judged(file, _silent)  # it is done before anybody sees how far it is
            if self.with_another and file.packed_bytes >= SPLIT_BYTES and not is_remote(file.origin.path):
                with second_part(file.origin.path, self.limits) as second:
                    return self._judged(file, tell, second)
            return self._judged(file, tell)
        except MemoryError as error:
            raise InputError(
                file.origin.path,
                "reading it needs more memory than available",
                expected=_ENOUGH_MEMORY,
                remedy=_READ_FEWER,
            ) from error

    def _judged(self, file: NamedFile, tell: Tell, second: SecondPart | None = None) -> JudgedFile:
        if second:
            second.aside.begin(get_ready)
        trace = _trace(file.origin, tell, self.limits, second)
        if file.is_of_many and (ranks := self._ranks(file, trace)):
            return JudgedFile(trace.health, (), ranks)
        is_alone = len(trace.device_indices) <= 1  # otherwise each device would send the whole trace
        aside = second.aside if second and is_alone else None
        judged = (judge(facts, self.rules, aside, in_detail=self.in_detail) for facts in self._facts(file, trace))
        return JudgedFile(trace.health, tuple(judged))

    def _ranks(self, file: NamedFile, trace: Trace) -> tuple[RankRecording, ...]:
        size = trace.distributed.world_size if trace.distributed else None
        if size is not None and size <= MOST_IN_FULL:
            return ()
        return tuple(filter(None, map(rank_recording, self._facts(file, trace))))

    def _facts(self, file: NamedFile, trace: Trace) -> Iterator[Facts]:
        """One recording per device of the trace; one recording without a device if there is no device activity."""
        devices: tuple[int | None, ...] = trace.device_indices or (None,)
        run, notes = self._run(file.origin)
        trace = replace(trace, own_code=run.settings.own_code if run else None)
        if len(devices) > MOST_DEVICES:
            message = f"The file contains {len(devices)} GPUs. The report shows only the first {MOST_DEVICES}."
            notes = (*notes, HealthNote("devices-left-out", message))
        for device in devices[:MOST_DEVICES]:
            name = file.id if len(devices) == 1 else f"{file.id}/device{device}"
            yield Facts(trace, device, name, run, notes, self.rank_waits.get(name))

    def facts(self, file: NamedFile, tell: Tell) -> Iterator[Facts]:
        """The facts of each device of a file, which hold its trace.

        Raises:
            InputError: the file cannot be read.
        """
        return self._facts(file, _trace(file.origin, tell, self.limits, None))

    def _run(self, origin: Origin) -> tuple[Run | None, tuple[HealthNote, ...]]:
        """The run that a capture stored beside the recording; recordings of the same rank share it."""
        if origin.bundle is None:
            return None, ()
        if origin.bundle not in self._bundles:
            self._bundles[origin.bundle] = BundleRuns(origin.bundle)
        return self._bundles[origin.bundle].run(origin.rank)


def _silent(_: int) -> None:
    """Tell nothing."""


@frozen
class _Elsewhere:
    """Judges files on another machine."""

    judge: FileJudge

    def __call__(self, file: NamedFile, tell: Tell) -> JudgedFile:
        if not file.origin.path.exists():
            raise InputError(
                file.origin.path,
                "does not exist for the worker of Dask",
                expected="a path that is the same on all machines",
                remedy="Use a folder that they share, or a URL.",
            )
        return self.judge(file, tell)


Shown = Callable[[Sequence[JudgedFile]], Container[str]]
"""Tells from all judged files the ids of the recordings that are shown in detail."""


def judge_files(  # noqa: PLR0913, PLR0917  # what is read, and how
    files: Sequence[NamedFile],
    rules: tuple[Rule, ...],
    progress: Progress,
    processes: int | str,
    limits: Limits = LIMITS,
    shown: Shown | None = None,
) -> list[Outcome[JudgedFile]]:
    """The judgement of each file; an InputError if it cannot be read, or a Fault of this program.

    How long collectives only wait for other ranks shows once all ranks were read. Ranks with a finding about
    communication are then read again. Of a job with more than `MOST_IN_FULL` ranks only the figures of each rank are
    kept, and :func:`in_full` chooses three that are then judged.

    Args:
        files: the files to read.
        rules: the rules to run.
        progress: called with the progress of each file.
        processes: number of files to read at the same time, each in its own process. A single file, or one file at a
            time, is read in this process, and another one helps with a large single file. On systems other than Unix,
            this process does everything. Or the address of a Dask cluster, whose workers read all files.
        limits: input limits for each file.
        shown: which recordings are then read again for their details; by default, all have them at once.
    """
    sizes_bytes = [file.size_bytes for file in files]
    watch = Watch(
        lambda position, read_bytes: progress(files[position].origin, read_bytes, sizes_bytes[position]),
        lambda position: progress(files[position].origin, sizes_bytes[position], sizes_bytes[position]),
    )
    for position in range(len(files)):
        watch.advanced(position, 0)
    crowds = Counter((file.origin.run, file.origin.cycle) for file in files)
    files = [replace(one, is_of_many=crowds[one.origin.run, one.origin.cycle] > MOST_IN_FULL) for one in files]
    with workers_for(processes, (file.origin.path for file in files)) as workers:
        with_another = workers != 1 and len(files) == 1
        return _judged(files, FileJudge(rules, limits, with_another, shown is None), watch, workers, shown)


@contextmanager
def workers_for(processes: int | str, paths: Iterable[Path]) -> Iterator[int | Cluster]:
    """The number of processes that may read some paths, or a connection to a cluster."""
    is_only_here = any(map(is_of_this_process, paths))
    if isinstance(processes, int):
        yield processes if os.name == "posix" and not is_only_here else 1
        return
    if is_only_here:
        raise UsageError("No worker of Dask can read memory://, which is in the memory of this process.")
    from traceadvisor.system.cluster import connected  # noqa: PLC0415  # seldom needed

    with connected(processes) as cluster:
        yield cluster


def _judged(
    files: Sequence[NamedFile], judge_file: FileJudge, watch: Watch, workers: int | Cluster, shown: Shown | None
) -> list[Outcome[JudgedFile]]:
    outcomes = _outcomes(judge_file, files, watch, workers)
    judged = {place: outcome for place, outcome in enumerate(outcomes) if isinstance(outcome, JudgedFile)}
    ranks = [one for each in judged.values() for one in each.compared]
    rank_waits, chosen = waits(ranks), in_full(ranks)
    communicating = {rule.meta.id for rule in judge_file.rules if Category.COMMUNICATION in rule.claims}
    again = [
        place
        for place, each in judged.items()
        if _is_told_more(each, rank_waits, communicating) or any(one.recording_id in chosen for one in each.ranks)
    ]
    told = {one.recording_id for place in again for one in judged[place].compared}
    judge_file = replace(judge_file, rank_waits={id_: spans for id_, spans in rank_waits.items() if id_ in told})
    _repeat(again, judge_file, files, outcomes, workers)
    if shown:
        judged = {place: outcome for place, outcome in enumerate(outcomes) if isinstance(outcome, JudgedFile)}
        ids = shown(tuple(judged.values()))
        again = [place for place, each in judged.items() if any(one.recording.id in ids for one in each.judgements)]
        _repeat(again, replace(judge_file, in_detail=True), files, outcomes, workers)
    return [
        died_reading(file.origin.path, outcome) if isinstance(outcome, Died) else outcome
        for outcome, file in zip(outcomes, files, strict=True)
    ]


def _repeat(
    places: Sequence[int],
    judge_file: FileJudge,
    files: Sequence[NamedFile],
    outcomes: list[Outcome[JudgedFile]],
    workers: int | Cluster,
) -> None:
    """Read some files again, of many ranks too, and put what is found in the place of their outcomes."""
    whole = [replace(files[place], is_of_many=False) for place in places]
    workers = min(workers, paying_processes(whole)) if isinstance(workers, int) else workers
    for place, outcome in zip(places, _outcomes(judge_file, whole, _UNWATCHED, workers), strict=True):
        outcomes[place] = outcome


_UNWATCHED = Watch(lambda _, __: None, lambda _: None)


def _outcomes(
    work: FileJudge, files: Sequence[NamedFile], watch: Watch, workers: int | Cluster
) -> list[Outcome[JudgedFile]]:
    weights = [file.size_bytes for file in files]
    return in_order(outcomes_by(workers, work if isinstance(workers, int) else _Elsewhere(work), files, watch, weights))


def outcomes_by(
    workers: int | Cluster, work: Work[Item, Result], items: Sequence[Item], watch: Watch, weights: Sequence[int]
) -> Iterator[tuple[int, Outcome[Result]]]:
    """The outcome for each item, with the item's position, as it is done: by processes, this one, or a cluster."""
    if not isinstance(workers, int):
        return workers.side_by_side(work, items, watch, weights=weights)
    if workers > 1 and len(items) > 1:
        return side_by_side(work, items, watch, processes=workers, weights=weights)
    return one_by_one(work, items, watch)


def _is_told_more(judged: JudgedFile, rank_waits: Mapping[str, SpanSet], communicating: Container[str]) -> bool:
    """Whether one of some rules on communication found something where waits for other ranks are known."""
    return any(
        isinstance(told, FoundFigures) and rule_id in communicating
        for one in judged.judgements
        if one.recording.id in rank_waits
        for rule_id, told in one.outcomes.items()
    )


def paying_processes(files: Iterable[NamedFile]) -> int:
    """Number of processes: at most the usable cores, each with enough input to outweigh its start-up time."""
    paid_bytes = sum(file.packed_bytes + _BESIDES_BYTES for file in files)
    return max(min(usable_cores(), paid_bytes // PAYING_BYTES), 1)


def died_reading(path: Path, how: Died) -> InputError:
    """The error about a path whose process died."""
    found = f"the process that read it {how}"
    return InputError(path, found, expected=_ENOUGH_MEMORY, remedy=_READ_FEWER)


def _trace(origin: Origin, tell: Tell, limits: Limits, second: SecondPart | None) -> Trace:
    """The trace. If the trace of a capture cannot be read, it is empty: the capture contains other data."""
    if origin.path.name == MANIFEST:
        return nothing_recorded(origin)
    try:
        return read_trace(origin, tell, limits, second=second)
    except InputError as error:
        if origin.bundle is None:
            raise
        return replace(nothing_recorded(origin), health=Health(notes=(HealthNote("unreadable", str(error)),)))
