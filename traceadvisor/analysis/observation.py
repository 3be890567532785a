"""A recording on one device, with the host activity that can explain idle time, and the training thread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from traceadvisor.analysis.data.input_pipeline import input_calls
from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.forward import backward_rows
from traceadvisor.analysis.operators.innermost import backward_passes
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_named, rows_with_prefix
from traceadvisor.analysis.operators.runtime_calls import allocator_rows, blocking_rows, profiler_stop_rows
from traceadvisor.analysis.steps.compiled_calls import main_thread
from traceadvisor.analysis.steps.inference_workload import serving_rows
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, either
from traceadvisor.model.events import NONE, EventTable, Kind
from traceadvisor.model.location import Location
from traceadvisor.model.once import once
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

UNREAD_SHARE = 0.01
"""Share of the understood work. Less work that is not understood changes no figure visibly."""

_NOT_THE_PROFILERS = ("Lazy Function Loading", "Command Buffer Full")
"""Overhead events of the driver, not of the profiler."""


@dataclass(frozen=True, eq=False)
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

    @property
    def loading(self) -> SpanSet:
        """Time of the training thread inside the data loader."""
        return self.loader.spans if self.loader else SpanSet.empty()

    @property
    def has_device(self) -> bool:
        """Whether any device work was recorded."""
        return bool(self.launches.work_rows.size)

    @cached_property
    def unread(self) -> SpanSet:
        """Time of device events that are not understood, outside the work that is."""
        events = self.trace.events
        return events.spans(events.rows(Kind.UNREAD)) - events.spans(self.launches.work_rows)

    @cached_property
    def is_unread(self) -> bool:
        """Whether too much of an accelerator's work is not understood to tell when it works."""
        if not self.trace.unread_work:
            return False
        understood_ns = self.trace.events.spans(self.launches.work_rows).total_ns
        return self.unread.total_ns >= UNREAD_SHARE * understood_ns

    @cached_property
    def active(self) -> ThreadSpans:
        """Time in operators and runtime calls, of all threads."""
        return _active(self.trace.events)

    @cached_property
    def backward(self) -> ThreadSpans:
        """Backward passes on other threads, in order: the training thread waits for them and runs no Python."""
        return _backward(self.trace, self.thread)

    @cached_property
    def named_backward(self) -> ThreadSpans:
        """Those of nodes that their names tell: a breakdown reads no more, and has to agree with a report."""
        return _named_backward(self.trace, self.thread)

    @property
    def allocating(self) -> ThreadSpans:
        """Calls in which threads take memory from the driver or give it back."""
        return ThreadSpans.of(self.trace.events, self.allocator_calls)


@once
def _active(events: EventTable) -> ThreadSpans:
    return ThreadSpans.of(events, events.rows(Kind.OPERATOR, Kind.RUNTIME)).joined


@once
def _backward(trace: Trace, thread: int) -> ThreadSpans:
    return backward_passes(trace, thread, backward_rows(trace))


@once
def _named_backward(trace: Trace, thread: int) -> ThreadSpans:
    return backward_passes(trace, thread, rows_with_prefix(trace, Kind.OPERATOR, BACKWARD_PREFIX))


def observe(trace: Trace, launches: Launches) -> Observation:
    """Collect the host activity around the given device work."""
    thread = training_thread(trace)
    return Observation(
        trace,
        launches,
        thread,
        _find_loader(trace, thread),
        profiler=trace.events.spans(either(profiler_rows(trace), profiler_stop_rows(trace))),
        blocked=trace.events.spans(blocking_rows(trace, launches)),
        allocator_calls=allocator_rows(trace),
    )


def profiler_rows(trace: Trace) -> Int64:
    """Return the events of the profiler's own work."""
    return rows_named(trace, Kind.OVERHEAD, lambda name: not name.startswith(_NOT_THE_PROFILERS))


def training_thread(trace: Trace) -> int:
    """Return the thread with the marks of steps or iterations; if it runs no operators, the busiest operator thread.

    Returns:
        A row of ``trace.threads``; NONE if the trace has neither marks nor operators.
    """
    if trace.framework:
        return main_thread(trace)
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


_LOADER_PREFIXES = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")


@frozen(eq=False)
class Loader:
    """The data loader as recorded."""

    spans: SpanSet
    """Time of the training thread inside ``__next__``."""

    rows: Int64
    """The loader's events on the training thread."""

    kinds: tuple[str, ...]
    """Names of the iterators, without prefix; old generations truncate them."""

    locations: tuple[Location, ...] = ()
    """Functions that load, where their names are all that tells."""

    @property
    def in_training_process(self) -> bool:
        """Whether every iterator loads in the training process itself (``num_workers=0``).

        Libraries name their iterators after torch's: ``_StatefulSingleProcessDataLoaderIter`` of torchdata.
        """
        return all("SingleProcess" in kind for kind in self.kinds)


def _find_loader(trace: Trace, thread: int) -> Loader | None:
    """Return the loader; None if the trace has no loader events, which does not mean no wait."""
    if trace.framework:
        found = input_calls(trace, thread)
        return Loader(found.spans, found.rows, found.names, found.locations) if found else None
    events = trace.events
    rows = rows_with_prefix(trace, Kind.ANNOTATION, *_LOADER_PREFIXES)
    if not rows.size:
        return None
    names = sorted({trace.names[number] for number in events.name_id[rows].tolist()})
    kinds = tuple(dict.fromkeys(name.split("#", 1)[1].removesuffix(".__next__") for name in names))
    mine = rows[events.thread[rows] == thread]
    return Loader(events.spans(mine), mine, kinds)
