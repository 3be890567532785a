"""Times the starts and ends of loops over each data loader: sampler, worker processes, first batch. Once per loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any
from weakref import WeakKeyDictionary

from traceadvisor.bundle.batches import BatchLog
from traceadvisor.bundle.settings import MOST_LOADERS
from traceadvisor.model.run import LoaderLoops
from traceadvisor.recording.loop.loaders import KnownLoader
from traceadvisor.system import clocks


@dataclass(slots=True)
class LoopStart:
    """The start of one loop."""

    took_ns: int = 0
    sampler_ns: int = 0
    has_processes: bool = False
    """Whether it started processes."""


@dataclass(slots=True)
class _Sums:
    loops: int = 0
    """With the first."""
    loaders: int = 1
    """More than one if the script makes one for each loop."""
    same_data: bool = True
    start_ns: int = 0
    sampler_ns: int = 0
    worker_start_ns: int = 0
    worker_stop_ns: int = 0
    first_batch_ns: int = 0


class LoopTimes:
    """The loops of all loaders in the training thread. Sums leave out the first loop over each, which also imports."""

    def __init__(self) -> None:
        self._sums: dict[KnownLoader, _Sums] = {}
        self._start = LoopStart()
        self._starts: WeakKeyDictionary[Any, LoopStart] = WeakKeyDictionary()
        self._asked: tuple[KnownLoader, int] | None = None
        """The loader whose first batch of a loop is being fetched, and since when."""
        self._latest: KnownLoader | None = None

    def began(self) -> None:
        """The ``__iter__`` of a loader begins."""
        self._start = LoopStart()

    def sampled(self, took_ns: int, *, starts_processes: bool) -> None:
        """A part of it: the sampler gave the indices that workers begin with."""
        self._start.sampler_ns += took_ns
        self._start.has_processes |= starts_processes

    def started(self, iterator: object, took_ns: int) -> None:
        """It has ended, and gave an iterator."""
        self._start.took_ns = took_ns
        self._starts[iterator] = self._start

    def stopped(self, took_ns: int) -> None:
        """The worker processes of the latest loop were stopped."""
        sums = self._sums.get(self._latest) if self._latest else None
        if sums and sums.loops > 1:
            sums.worker_stop_ns += took_ns

    def fetch_begins(self, loader: KnownLoader, iterator: object) -> bool:
        """A batch is asked for; whether it is the first of a loop."""
        start = self._starts.pop(iterator, None) if self._starts else None
        if start is None:
            return False
        sums = self._sums.get(loader) or self._continued(loader)
        if sums is None:
            return True
        self._latest = loader
        sums.loops += 1
        if sums.loops > 1:
            sums.start_ns += start.took_ns
            sums.sampler_ns += start.sampler_ns
            sums.worker_start_ns += max(start.took_ns - start.sampler_ns, 0) if start.has_processes else 0
            self._asked = loader, clocks.perf_counter_ns()
        return True

    def _continued(self, loader: KnownLoader) -> _Sums | None:
        """The sums of a new loader, which go on where it stands for one that had a single loop; None for too many."""
        for former, sums in self._sums.items():
            if sums.loops == sums.loaders and loader.follows(former):
                self._sums[loader] = self._sums.pop(former)
                sums.loaders += 1
                sums.same_data &= loader.has_data_of(former)
                return sums
        return self._sums.setdefault(loader, _Sums()) if len(self._sums) < MOST_LOADERS else None

    def fetched(self) -> None:
        """It was returned."""
        if self._asked:
            loader, begun_ns = self._asked
            self._sums[loader].first_batch_ns += clocks.perf_counter_ns() - begun_ns
            self._asked = None

    def result(
        self, training: KnownLoader | None, log_of: Callable[[KnownLoader], BatchLog | None]
    ) -> tuple[LoaderLoops, ...]:
        """The loops over each loader with workers that was iterated more than once."""
        many: Mapping[KnownLoader, _Sums] = {
            loader: sums for loader, sums in self._sums.items() if sums.loops > 1 and loader.workers
        }
        return tuple(
            LoaderLoops(
                loader.workers,
                bool(loader.settings.persistent_workers),
                training is not None and (loader is training or loader.follows(training)),
                sums.loops - 1,
                sums.start_ns,
                sums.sampler_ns,
                sums.worker_start_ns,
                sums.worker_stop_ns,
                sums.first_batch_ns,
                _batch_ns(log_of(loader), firsts=loader.begins_anew * loader.workers * sums.loops),
                loader.settings.location,
                loader.constructed.place if loader.constructed and not loader.constructed.through else None,
                sums.loaders,
                sums.same_data,
            )
            for loader, sums in many.items()
        )


def _batch_ns(log: BatchLog | None, *, firsts: int) -> int | None:
    """Return the median time to make a batch; with ``firsts``, the mean of so many of the longest."""
    made_ns = sorted(batch.duration_ns for batch in log or ())
    return round(fmean(made_ns[-firsts:]) if firsts else median(made_ns)) if made_ns else None
