"""Collects the clock reads around the loading of batches, from loader workers and from the training thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from torch.utils.data._utils import fetch, worker
from torch.utils.data.dataloader import _BaseDataLoaderIter, _SingleProcessDataLoaderIter

from traceadvisor.bundle.batches import BatchLog
from traceadvisor.recording.loop import worker_clocks
from traceadvisor.recording.loop.loaders import KnownLoader
from traceadvisor.recording.loop.worker_clocks import (
    MOST_WAITING,
    BatchClock,
    Moment,
    Reading,
    sampled_worker_loop,
    timed_worker_loop,
)
from traceadvisor.recording.loop.worker_stacks import LoaderSamples
from traceadvisor.recording.script.own_code import unseen
from traceadvisor.system import clocks

_LOOP = "_worker_loop"

ALL_BATCHES, SHORT_NS = 50, 10_000_000
"""The training thread times its first batches, and later at most one in this time, and one for each time that events
are passed on: the clocks take a few percent of a step of a millisecond."""


class BatchClocks:
    """The batches of all loaders of the training thread. After an error it does nothing more, and nothing fails."""

    def __init__(self, thread: int, *, sampled: bool = True, drawn: Callable[[], None] = lambda: None) -> None:
        """Hook torch; ``sampled``: workers also sample their stack; ``drawn``: loading draws random numbers."""
        self._thread = thread
        self._own_loop = sampled_worker_loop if sampled else timed_worker_loop
        self._drawn = drawn
        self._wall_ns = clocks.time_ns() - clocks.perf_counter_ns()
        self._arrivals: deque[tuple[Any, ...]] = deque(maxlen=MOST_WAITING)
        self._by_pid: dict[int, KnownLoader] = {}
        self._logs: dict[KnownLoader, BatchLog] = {}
        self._samples: dict[KnownLoader, LoaderSamples] = {}
        self._fetching: object = None
        self._ended: Reading | None = None
        self._clock: BatchClock | None = None
        self._all_left, self._begun_ns = ALL_BATCHES, 0
        self._is_in_process = False
        """Whether the training thread makes the batches that it asks for."""
        self._moments: list[tuple[type, str]] = []
        self._loop: Any = None
        try:
            self._install()
        except Exception:  # noqa: BLE001  # another torch: batches are not timed
            self.remove()

    def log_of(self, loader: KnownLoader | None) -> BatchLog | None:
        """The batches of a loader; None without any."""
        return self._logs.get(loader) if loader else None

    def samples_of(self, loader: KnownLoader | None) -> LoaderSamples | None:
        """The samples of a loader's workers; None without any."""
        return self._samples.get(loader) if loader else None

    @property
    def is_settled(self) -> bool:
        """Whether not every batch is to be timed."""
        return self._all_left <= 0 or not self._is_in_process or not self._clock

    def knows(self, iterator: object, loader: KnownLoader) -> None:
        """An iterator belongs to a loader: so do the batches of its workers."""
        for process in getattr(iterator, "_workers", ()):
            if (pid := getattr(process, "pid", None)) is not None:
                self._by_pid[pid] = loader

    def fetch_begins(self, iterator: object) -> None:
        """The training thread asks for a batch."""
        self._fetching, self._ended = iterator, None
        self._is_in_process = _makes_batches(iterator)
        now_ns = clocks.perf_counter_ns()
        if self._is_in_process and (self._all_left > 0 or now_ns - self._begun_ns >= SHORT_NS):
            self._begun_ns = now_ns
            self._watch(_owner(iterator))

    def fetch_ended(self, loader: KnownLoader, *, got_batch: bool) -> None:
        """It has the batch, or there is none."""
        self._fetching = None
        if got_batch and self._ended:
            self._add(loader, self._ended, in_worker=False)
        if self._clock:
            self._clock.forget()
        if self._all_left <= 0:
            self._unwatch()
        self._take_arrivals()

    def remove(self) -> None:
        """Restore torch. Loaders that live on keep working."""
        self._take_arrivals()
        if self._loop is not None and getattr(worker, _LOOP) is self._own_loop:
            setattr(worker, _LOOP, self._loop)
        if worker_clocks.arrivals is self._arrivals:
            worker_clocks.arrivals = None
        self._unwatch()
        self._loop = None
        if self._clock:
            self._clock.close()
            self._clock = None

    def _install(self) -> None:
        loop = getattr(worker, _LOOP)
        if getattr(loop, "__module__", None) == worker.__name__:  # otherwise another library's loop
            self._loop = worker_clocks.torch_loop = loop
            worker_clocks.arrivals = self._arrivals
            setattr(worker, _LOOP, self._own_loop)
        self._clock = BatchClock(0)

    def _watch(self, kind: type) -> None:
        """Time the next batch that the training thread makes itself, with an iterator of this class."""
        if not self._clock or (kind, "_dataset_fetcher") in self._moments:
            return
        self._unwatch()
        for owner, name, read in (
            (kind, "_dataset_fetcher", self._begins),
            (kind, "_pin_memory", self._ends),
            (fetch._BaseDatasetFetcher, "collate_fn", self._collating),
        ):
            if name not in owner.__dict__:
                setattr(owner, name, Moment(name, read))
                self._moments.append((owner, name))

    def _unwatch(self) -> None:
        for owner, name in self._moments:
            if isinstance(owner.__dict__.get(name), Moment):
                delattr(owner, name)
        self._moments = []

    def _take_arrivals(self) -> None:
        while self._arrivals:
            figures = Reading(*self._arrivals.popleft())
            if made_by := self._by_pid.get(figures.pid):
                self._add(made_by, figures, in_worker=True)

    @unseen
    def _begins(self, iterator: object) -> None:
        """The training thread makes a batch itself. Other threads fetch from other iterators."""
        if iterator is self._fetching and self._clock:
            self._all_left -= 1
            self._clock.restart()
            self._clock.begin()

    @unseen
    def _collating(self, _: object) -> None:
        if self._fetching is not None and self._clock and threading.get_ident() == self._thread:
            self._clock.collating()

    @unseen
    def _ends(self, iterator: object) -> None:
        """The batch is complete but for pinning."""
        if iterator is self._fetching and self._clock:
            self._ended = self._clock.end() or self._ended

    def _add(self, loader: KnownLoader, figures: Reading, *, in_worker: bool) -> None:
        if (log := self._logs.get(loader)) is None:
            log = self._logs[loader] = BatchLog()
        by = figures.worker if in_worker else None
        log.add((by, self._wall_ns + figures.start_ns, *figures[3:-2]))
        if figures.has_drawn:
            self._drawn()
        if figures.samples:
            self._samples.setdefault(loader, LoaderSamples()).add(figures.samples)


def _makes_batches(iterator: object) -> bool:
    """Whether an iterator makes its batches itself, as torch's and those of torchdata do without workers."""
    return isinstance(iterator, _BaseDataLoaderIter) and getattr(iterator, "_num_workers", None) == 0


def _owner(iterator: object) -> type:
    """The class to hook for an iterator: torch's own for all its subclasses."""
    return _SingleProcessDataLoaderIter if isinstance(iterator, _SingleProcessDataLoaderIter) else type(iterator)
