"""A recording on one device, with the host activity that can explain idle time, and the training thread."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceadvisor.analysis.data.loader import Loader, find_loader
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import rows_named, rows_with_prefix
from traceadvisor.analysis.operators.runtime_calls import allocator_rows, blocking_rows, profiler_stop_rows
from traceadvisor.analysis.steps.inference import serving_rows
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

_NOT_THE_PROFILERS = ("Lazy Function Loading", "Command Buffer Full")
"""Overhead events of the driver, not of the profiler."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One device's recording, with the host spans that the breakdown needs."""

    trace: Trace
    launches: Launches
    """Launches of the one device; empty without device activity."""

    thread: int
    """The training thread."""

    loader: Loader | None
    profiler: SpanSet
    """Time that the profiler takes for itself."""

    blocked: SpanSet
    """Time in which some thread waits for the device."""

    allocator_calls: Int64
    _active: dict[int, SpanSet] = field(default_factory=dict)
    _allocating: dict[int, SpanSet] = field(default_factory=dict)

    @property
    def loading(self) -> SpanSet:
        """Time of the training thread inside the data loader."""
        return self.loader.spans if self.loader else SpanSet.empty()

    @property
    def has_device(self) -> bool:
        """Whether any device work was recorded."""
        return bool(self.launches.work_rows.size)

    def active(self, thread: int) -> SpanSet:
        """Return the time of a thread in operators or runtime calls."""
        if thread not in self._active:
            events = self.trace.events
            self._active[thread] = events.spans(events.is_kind(Kind.OPERATOR, Kind.RUNTIME) & (events.thread == thread))
        return self._active[thread]

    def allocating(self, thread: int) -> SpanSet:
        """Return the time in which a thread takes memory from the driver or gives it back."""
        if thread not in self._allocating:
            rows = self.allocator_calls
            self._allocating[thread] = self.trace.events.spans(rows[self.trace.events.thread[rows] == thread])
        return self._allocating[thread]


def observe(trace: Trace, launches: Launches) -> Observation:
    """Collect the host activity around the given device work."""
    thread = training_thread(trace)
    overhead = rows_named(trace, Kind.OVERHEAD, lambda name: not name.startswith(_NOT_THE_PROFILERS))
    return Observation(
        trace,
        launches,
        thread,
        find_loader(trace, thread),
        profiler=trace.events.spans(np.union1d(overhead, profiler_stop_rows(trace))),
        blocked=trace.events.spans(blocking_rows(trace, launches)),
        allocator_calls=allocator_rows(trace),
    )


def training_thread(trace: Trace) -> int:
    """Return the thread with the marks of steps or iterations; if it runs no operators, the busiest operator thread.

    Returns:
        A row of ``trace.threads``; NONE if the trace has neither marks nor operators.
    """
    events = trace.events
    operators = events.rows(Kind.OPERATOR)
    candidates = (rows_with_prefix(trace, Kind.ANNOTATION, prefix) for prefix in ("ProfilerStep#", "Optimizer.step#"))
    for marks in (*candidates, serving_rows(trace)):
        if marks.size:
            owner = int(events.thread[marks[0]])
            if not operators.size or (events.thread[operators] == owner).any():
                return owner
            break
    if not operators.size:
        return NONE
    threads, owners = np.unique(events.thread[operators], return_inverse=True)
    return int(threads[np.bincount(owners, weights=events.duration_ns[operators]).argmax()])
