"""Select calls of the runtimes of accelerators by what they do, judging by name."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import name_mask, rows_named, rows_with_prefix
from traceadvisor.hardware.profiler_names import runtime_calls
from traceadvisor.model.arrays import Int64, among, either, without
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.once import once
from traceadvisor.model.trace import Trace

_SYNCHRONISE, _DEVICE_SYNCHRONISE = runtime_calls("synchronise"), runtime_calls("synchronise_device")
_ENQUEUE, _BLOCKING_COPY = runtime_calls("enqueue"), runtime_calls("blocking_copy")


def allocator_rows(trace: Trace) -> Int64:
    """Return calls that take memory from the driver or give it back."""
    return _rows(trace, runtime_calls("allocate"))


@once
def kernel_launch_rows(trace: Trace) -> Int64:
    """Return calls that launch a kernel."""
    return _rows(trace, runtime_calls("launch"))


@once
def graph_launch_rows(trace: Trace) -> Int64:
    """Return calls that launch a captured graph, with all its operations."""
    return _rows(trace, runtime_calls("graph_launch"))


@once
def synchronise_rows(trace: Trace, *, device_only: bool = False) -> Int64:
    """Return calls that wait for the device, or only those that wait for all its streams."""
    return _rows(trace, _DEVICE_SYNCHRONISE if device_only else _SYNCHRONISE)


@once
def enqueue_rows(trace: Trace) -> Int64:
    """Return calls that enqueue device work of any kind."""
    return _rows(trace, _ENQUEUE)


@once
def profiler_stop_rows(trace: Trace) -> Int64:
    """Return the profiler's own synchronisation when it stops: the last device-related call, if it is one.

    If the run synchronises as often as it marks steps, the last synchronisation counts as the run's own.
    """
    own = synchronise_rows(trace, device_only=True)
    last = either(own, enqueue_rows(trace))[-1:]
    marks = rows_with_prefix(trace, Kind.ANNOTATION, "ProfilerStep#")
    if 1 < marks.size == own.size:
        return last[:0]
    return last[among(last, own)]


@once
def blocking_rows(trace: Trace, launches: Launches) -> Int64:
    """Return calls in which the host waits for the device: synchronisations, blocking and pageable copies.

    The profiler's own synchronisation at its stop is excluded.
    """
    by_name = either(synchronise_rows(trace), _rows(trace, _BLOCKING_COPY))
    pageable = name_mask(trace.names, lambda name: "Pageable" in name)[trace.events.name_id[launches.work_rows]]
    by_copy = launches.call_rows[pageable]
    blocking = either(by_name, by_copy[by_copy != NONE])
    return without(blocking, profiler_stop_rows(trace))


def _rows(trace: Trace, pattern: re.Pattern[str]) -> Int64:
    return rows_named(trace, Kind.RUNTIME, pattern.search)


def copy_call_rows(launches: Launches, kinds: np.typing.NDArray[np.int8], kind: Kind) -> Int64:
    """Return calls that launched a copy of one direction."""
    calls = launches.call_rows[kinds[launches.work_rows] == kind]
    return np.unique(calls[calls != NONE])
