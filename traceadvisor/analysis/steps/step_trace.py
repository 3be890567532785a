"""The named events of one step, for a trace to look into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.tree import parents_of
from traceadvisor.analysis.steps.marks import is_step_mark
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.timeline import DEEPEST_SHOWN, Activity, StepTrace, TraceLane
from traceadvisor.model.trace import Trace

MOST_HOST_EVENTS = 2_000
MOST_DEVICE_EVENTS = 1_500
"""Events of all lanes together, the longest ones; a page must stay small."""

MOST_STREAMS = 6

KINDS: tuple[Category | Activity, ...] = (
    Activity.OPERATOR,
    Activity.RUNTIME_CALL,
    Activity.BLOCKED,
    Activity.LOADING,
    Activity.OPTIMIZER,
    Category.KERNEL,
    Category.COMMUNICATION,
    Category.H2D_COPY,
    Category.OTHER_COPY,
)

_DEVICE_KINDS = {
    Kind.KERNEL: Category.KERNEL,
    Kind.COLLECTIVE: Category.COMMUNICATION,
    Kind.COPY_H2D: Category.H2D_COPY,
    Kind.COPY_D2H: Category.OTHER_COPY,
    Kind.COPY_OTHER: Category.OTHER_COPY,
    Kind.MEMSET: Category.OTHER_COPY,
}


def cpu_collective_rows(observation: Observation) -> Int64:
    """Return collectives that run on CPU threads; none with GPU work, whose collectives run on streams."""
    if observation.launches.work_rows.size:
        return np.empty(0, dtype=np.int64)
    return host_collective_rows(observation.trace)


def thread_title(trace: Trace, number: int, training_thread: int) -> str:
    """Return the title of a thread's lane."""
    if number == training_thread:
        return "training thread"
    thread = trace.threads[number]
    return thread.name or f"thread {thread.thread}"


def stream_title(trace: Trace, number: int) -> str:
    """Return the title of a stream's lane; NONE is a stream that was not recorded."""
    return f"stream {trace.streams[number]}" if number >= 0 else "stream not recorded"


def step_trace(observation: Observation, threads: Sequence[int], window: tuple[int, int]) -> StepTrace | None:
    """Return the events of some threads and of the busiest streams in a window; None if there are none.

    Costs n log n of the events in the window.
    """
    trace = observation.trace
    host, dropped_calls = _longest(trace, _host_rows(observation, threads, window), window, MOST_HOST_EVENTS)
    work, dropped_work = _longest(trace, _device_rows(observation, window), window, MOST_DEVICE_EVENTS)
    if not host.size and not work.size:
        return None
    used, name = np.unique(trace.events.name_id[np.concatenate((host, work))], return_inverse=True)
    lanes = (
        *_host_lanes(observation, threads, host, name[: host.size], window),
        *_device_lanes(trace, work, name[host.size :], window),
    )
    kept = sum(lane.name.size for lane in lanes)
    left_out = dropped_calls + dropped_work + host.size + work.size - kept
    return StepTrace(tuple(trace.names[each] for each in used.tolist()), KINDS, lanes, left_out)


def _host_rows(observation: Observation, threads: Sequence[int], window: tuple[int, int]) -> Int64:
    events = observation.trace.events
    rows = events.rows(Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME)
    rows = rows[(events.start_ns[rows] < window[1]) & (events.end_ns[rows] > window[0])]
    rows = rows[np.isin(events.thread[rows], threads)]
    names = observation.trace.names
    marks = [each for each in np.unique(events.name_id[rows]).tolist() if is_step_mark(names[each])]
    return rows[~np.isin(events.name_id[rows], marks)]


def _device_rows(observation: Observation, window: tuple[int, int]) -> Int64:
    events, rows = observation.trace.events, observation.launches.work_rows
    rows = rows[(events.start_ns[rows] < window[1]) & (events.end_ns[rows] > window[0])]
    if not rows.size:
        return rows
    busy_ns = np.bincount(events.stream[rows] + 1, weights=events.duration_ns[rows])
    busiest = np.argsort(-busy_ns, kind="stable")[:MOST_STREAMS] - 1
    return rows[np.isin(events.stream[rows], busiest)]


def _longest(trace: Trace, rows: Int64, window: tuple[int, int], most: int) -> tuple[Int64, int]:
    """Return the longest events by their time in the window, and how many are left out."""
    inside_ns = np.minimum(trace.events.end_ns[rows], window[1]) - np.maximum(trace.events.start_ns[rows], window[0])
    chosen = rows[np.argsort(-inside_ns, kind="stable")[:most]]
    return np.sort(chosen), rows.size - chosen.size


def _host_lanes(
    observation: Observation, threads: Sequence[int], rows: Int64, name: Int64, window: tuple[int, int]
) -> Iterator[TraceLane]:
    trace, events = observation.trace, observation.trace.events
    kind = _host_kinds(observation, rows)
    for thread in threads:
        mine = np.flatnonzero(events.thread[rows] == thread)
        if mine.size:
            title = thread_title(trace, thread, observation.thread)
            yield _lane(trace, title, _Events(rows[mine], name[mine], kind[mine]), window)


def _host_kinds(observation: Observation, rows: Int64) -> Int64:
    trace, events = observation.trace, observation.trace.events
    kind = np.full(rows.size, KINDS.index(Activity.OPERATOR), dtype=np.int64)
    calls = events.kind[rows] == Kind.RUNTIME
    waits = calls & observation.blocked.contains(events.start_ns[rows])
    kind[calls] = KINDS.index(Activity.RUNTIME_CALL)
    kind[waits] = KINDS.index(Activity.BLOCKED)
    ranges = events.kind[rows] == Kind.ANNOTATION
    kind[ranges & observation.loading.contains(events.start_ns[rows])] = KINDS.index(Activity.LOADING)
    optimizer = [number for number, text in enumerate(trace.names) if text.startswith("Optimizer.step")]
    kind[ranges & np.isin(events.name_id[rows], optimizer)] = KINDS.index(Activity.OPTIMIZER)
    kind[np.isin(rows, cpu_collective_rows(observation))] = KINDS.index(Category.COMMUNICATION)
    return kind


def _device_lanes(trace: Trace, rows: Int64, name: Int64, window: tuple[int, int]) -> Iterator[TraceLane]:
    events = trace.events
    known = {kind.value: KINDS.index(category) for kind, category in _DEVICE_KINDS.items()}
    kind = np.array([known[each] for each in events.kind[rows].tolist()], dtype=np.int64)
    for stream in np.unique(events.stream[rows]).tolist():
        mine = np.flatnonzero(events.stream[rows] == stream)
        yield _lane(trace, stream_title(trace, stream), _Events(rows[mine], name[mine], kind[mine]), window)


@frozen(eq=False)
class _Events:
    """Events of one lane; arrays of shape ``(n,)``."""

    rows: Int64
    name: Int64
    kind: Int64


def _lane(trace: Trace, title: str, events: _Events, window: tuple[int, int]) -> TraceLane:
    start = np.maximum(trace.events.start_ns[events.rows], window[0])
    end = np.minimum(trace.events.end_ns[events.rows], window[1])
    order = np.lexsort((start - end, start))
    start, end = start[order], end[order]
    depth = _depths(parents_of(start, end, np.zeros(start.size, dtype=np.int32)))
    shown = depth <= DEEPEST_SHOWN
    columns = (start - window[0], end - start, events.name[order], events.kind[order], depth)
    return TraceLane(title, *(column[shown].astype(np.int64) for column in columns))


def _depths(parents: Int64) -> Int64:
    """Return how many events are around each one; a parent comes before its children."""
    depths: list[int] = []
    for parent in parents.tolist():
        depths.append(0 if parent == NONE else depths[parent] + 1)
    return np.array(depths, dtype=np.int64)
