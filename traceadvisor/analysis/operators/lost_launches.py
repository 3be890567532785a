"""Launches without a device record: lost, or captured into a CUDA graph and never run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.launches import link_launches
from traceadvisor.analysis.operators.names import name_mask, rows_named
from traceadvisor.analysis.operators.runtime_calls import graph_launch_rows, kernel_launch_rows
from traceadvisor.analysis.steps.detection import recording_extent
from traceadvisor.frozen import frozen
from traceadvisor.hardware.profiler_names import runtime_calls
from traceadvisor.model.arrays import Int64, Mask, among
from traceadvisor.model.events import DEVICE_WORK, NONE, EventTable, Kind
from traceadvisor.model.once import once
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import PythonCalls, Trace

_BEGIN_IN_PYTHON = re.compile(r"torch/cuda/graphs\.py\(\d+\): capture_begin$")
_END_IN_PYTHON = re.compile(r"torch/cuda/graphs\.py\(\d+\): capture_end$")


@frozen(eq=False)
class KernelLaunches:
    """Launches that should have a device record, over all devices; arrays of shape ``(n,)``, by start."""

    rows: Int64
    is_lost: Mask
    """Whether no device work has the launch's correlation id."""

    @property
    def lost_rows(self) -> Int64:
        """Rows of launches without a device record."""
        return self.rows[self.is_lost]


@once
def expected_launches(trace: Trace) -> KernelLaunches:
    """Return the kernel launches that a device should have run.

    Some launches without a device record are left out. During graph capture, a kernel becomes part of a graph. Some
    profilers record one launch as two calls, one inside the other, and only one of them has the record. Some do not
    link the kernels of graphs to their launches: if no graph launch has linked work and the recording holds unlinked
    work, graph launches are left out. If no device work was recorded at all, no launch is lost.
    """
    events = trace.events
    rows, work = kernel_launch_rows(trace), events.rows(*DEVICE_WORK)
    if not rows.size:
        return KernelLaunches(rows, np.zeros(0, dtype=np.bool_))
    has_none = ~np.isin(events.correlation[rows], events.correlation[work])
    is_expected = ~(has_none & capture_spans(trace).contains(events.start_ns[rows]))
    is_expected[has_none] &= ~_overlaps_any(events, rows[has_none], rows[~has_none])
    is_lost = has_none & bool(work.size)
    is_graph = among(rows, graph_launch_rows(trace))
    if is_graph.any() and is_lost[is_graph].all() and (link_launches(events).call_rows == NONE).any():
        is_expected &= ~is_graph
    return KernelLaunches(rows[is_expected], is_lost[is_expected])


def _overlaps_any(events: EventTable, rows: Int64, others: Int64) -> Mask:
    """Return whether each call overlaps one of some others on its thread; shape of ``rows``."""
    if not others.size or not rows.size:
        return np.zeros(rows.size, dtype=np.bool_)
    asked = ThreadSpans.of(events, rows)
    return asked.meet(ThreadSpans.of(events, others))


@once
def capture_spans(trace: Trace) -> SpanSet:
    """Return the time from the start of each graph capture to its end, on any thread.

    A capture without a recorded end lasts until the next launch with a device record. A capture without a recorded
    start begins with the end of the last such launch. Captures may be nested.
    """
    events, calls = trace.events, trace.python_calls
    begins, ends = (
        rows_named(trace, Kind.RUNTIME, runtime_calls(purpose).search) for purpose in ("begin_capture", "end_capture")
    )
    begun, ended = (
        np.flatnonzero(name_mask(trace.names, pattern.search)[calls.name_id])
        for pattern in (_BEGIN_IN_PYTHON, _END_IN_PYTHON)
    )
    if not (begins.size or ends.size or begun.size or ended.size):
        return SpanSet.empty()
    launched, extent = _recorded_launches(trace), recording_extent(trace)
    pairs = (*_pairs(events, begins, ends, launched, extent), *_pairs(calls, begun, ended, launched, extent))
    return SpanSet.of(*pairs)


def _recorded_launches(trace: Trace) -> tuple[Int64, Int64]:
    """Return the starts and the ends of kernel launches with a device record, both ascending."""
    events = trace.events
    rows = kernel_launch_rows(trace)
    rows = rows[np.isin(events.correlation[rows], events.correlation[events.rows(*DEVICE_WORK)])]
    return np.sort(events.start_ns[rows]), np.sort(events.end_ns[rows])


def _pairs(
    calls: EventTable | PythonCalls, begins: Int64, ends: Int64, launched: tuple[Int64, Int64], extent: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Yield each capture, with the calls that begin and end them paired by thread, innermost first."""
    open_ns: dict[int, list[int]] = defaultdict(list)
    is_end = np.repeat((False, True), (begins.size, ends.size))
    rows = np.concatenate((begins, ends))
    for at in np.argsort(calls.start_ns[rows], kind="stable").tolist():
        row = int(rows[at])
        thread = int(calls.thread[row])
        if not is_end[at]:
            open_ns[thread].append(int(calls.start_ns[row]))
            continue
        end_ns = int(calls.end_ns[row])
        if open_ns[thread]:
            yield open_ns[thread].pop(), end_ns
        else:
            earlier = int(np.searchsorted(launched[1], calls.start_ns[row], side="right"))
            yield int(launched[1][earlier - 1]) if earlier else extent[0], end_ns
    for starts_ns in open_ns.values():
        for start_ns in starts_ns:
            later = int(np.searchsorted(launched[0], start_ns))
            yield start_ns, int(launched[0][later]) if later < launched[0].size else extent[1]
