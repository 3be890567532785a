"""The timeline of the representative step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.operators.tree import parents_of
from traceadvisor.analysis.steps.breakdown import DEVICE_PRECEDENCE, Partition
from traceadvisor.analysis.steps.detection import is_step_mark
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask, among, grouped, joined, numbers_in, one_of, taken
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, EventTable, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step, StepTable
from traceadvisor.model.timeline import DEEPEST_SHOWN, PARTS, Activity, Lane, StepTrace, Timeline, TraceLane
from traceadvisor.model.trace import Trace

MOST_HOST_LANES = 4
MOST_STREAM_LANES = 6


def representative_step(table: StepTable) -> Step | None:
    """Return the kept step with the median duration."""
    kept = sorted(table.kept or table.steps, key=lambda step: step.duration_ns)
    return kept[(len(kept) - 1) // 2] if kept else None


def step_timeline(observation: Observation, partition: Partition, step: Step) -> Timeline:
    """Return what threads and streams did during one step."""
    window = (step.start_ns, step.end_ns)
    threads = _threads(observation, window)
    return Timeline(
        step.index,
        *window,
        _host_lanes(observation, threads, window),
        _stream_lanes(observation.trace, observation.launches, window),
        Lane("", {category: spans.clip(*window) for category, spans in partition.items()}),
        step_trace(observation, threads, window),
    )


def _threads(observation: Observation, window: tuple[int, int]) -> tuple[int, ...]:
    """Return the training thread, then the threads with most time in operators, runtime calls and collectives."""
    trace, events = observation.trace, observation.trace.events
    inside = (events.start_ns < window[1]) & (events.end_ns > window[0])
    is_shown = events.is_kind(Kind.OPERATOR, Kind.RUNTIME)
    is_shown[_cpu_collective_rows(observation)] = True
    on_host = np.flatnonzero(inside & is_shown)
    busy_ns = np.bincount(
        events.thread[on_host], weights=events.duration_ns[on_host], minlength=max(len(trace.threads), 1)
    )
    busiest = [
        other
        for other in np.argsort(-busy_ns, kind="stable").tolist()
        if busy_ns[other] and other != observation.thread
    ]
    return (observation.thread, *busiest)[:MOST_HOST_LANES]


def _host_lanes(observation: Observation, threads: Sequence[int], window: tuple[int, int]) -> tuple[Lane, ...]:
    """Return the lanes of the threads that did anything."""
    trace = observation.trace
    lanes = []
    for number in threads:
        is_training = number == observation.thread
        spans = _thread_spans(observation, number, window)
        if is_training:
            spans[Activity.LOADING] = observation.loading.clip(*window)
        if any(spans.values()):
            lanes.append(Lane(_thread_title(trace, number, observation.thread), spans))
    return tuple(lanes)


def _thread_spans(observation: Observation, thread: int, window: tuple[int, int]) -> dict[Category | Activity, SpanSet]:
    events = observation.trace.events

    def of(rows: Int64) -> SpanSet:
        rows = rows[: np.searchsorted(events.start_ns[rows], window[1])]
        rows = rows[(events.thread[rows] == thread) & (events.end_ns[rows] > window[0])]
        return events.spans(rows).clip(*window)

    runtime, steps = of(events.rows(Kind.RUNTIME)), optimizer_steps(observation.trace)
    return {
        Activity.OPTIMIZER: of(steps.rows) - steps.closures,
        Activity.OPERATOR: of(events.rows(Kind.OPERATOR)),
        Activity.RUNTIME_CALL: runtime,
        Activity.BLOCKED: runtime & observation.blocked,
        Category.COMMUNICATION: of(_cpu_collective_rows(observation)),
    }


def _stream_lanes(trace: Trace, launches: Launches, window: tuple[int, int]) -> tuple[Lane, ...]:
    events = trace.events
    rows = launches.work_rows
    rows = rows[(events.start_ns[rows] < window[1]) & (events.end_ns[rows] > window[0])]
    if not rows.size:
        return ()
    busy_ns = np.bincount(events.stream[rows] + 1, weights=events.duration_ns[rows])
    busiest = [number - 1 for number in np.argsort(-busy_ns, kind="stable").tolist() if busy_ns[number]]
    return tuple(
        Lane(
            _stream_title(trace, number),
            _stream_spans(events, rows[events.stream[rows] == number], window),
        )
        for number in busiest[:MOST_STREAM_LANES]
    )


def _stream_spans(events: EventTable, rows: Int64, window: tuple[int, int]) -> Mapping[Category | Activity, SpanSet]:
    return {
        category: events.spans(rows[one_of(events.kind[rows], *members)]).clip(*window)
        for category, members in reversed(DEVICE_PRECEDENCE)
    }


_MOST_HOST_EVENTS = 12_000
_MOST_DEVICE_EVENTS = 8_000
"""Events of all lanes together, the longest ones: what a page could hold at most."""

_MOST_STREAMS = 6

_KINDS: tuple[Category | Activity, ...] = (
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


def _cpu_collective_rows(observation: Observation) -> Int64:
    """Return collectives that run on CPU threads; none with GPU work, whose collectives run on streams."""
    if observation.launches.work_rows.size:
        return np.empty(0, dtype=np.int64)
    return host_collective_rows(observation.trace)


def _thread_title(trace: Trace, number: int, training_thread: int) -> str:
    if number == training_thread:
        return "training thread"
    thread = trace.threads[number]
    return thread.name or f"thread {thread.thread}"


def _stream_title(trace: Trace, number: int) -> str:
    """Return the title of a stream's lane; NONE is a stream that was not recorded."""
    return f"stream {trace.streams[number]}" if number >= 0 else "stream not recorded"


@frozen(eq=False)
class _Events:
    """Events of a step; arrays of shape ``(n,)``."""

    rows: Int64
    lane: Int64
    kind: Int64
    launch: Int64
    is_kept: Mask


def step_trace(observation: Observation, threads: Sequence[int], window: tuple[int, int]) -> StepTrace | None:
    """Return the events of some threads and of the busiest streams in a window; None if there are none.

    Costs n log n of the events in the window.
    """
    trace = observation.trace
    host, device = _on_host(observation, threads, window), _on_device(observation, window)
    streams, stream = grouped(device.lane)
    both = joined([host, replace(device, lane=stream + len(threads))])
    if not both.rows.size:
        return None
    names, _ = grouped(trace.events.name_id[both.rows[both.is_kept]])
    lanes = []
    for place in numbers_in(both.lane):
        if place < len(threads):
            title = _thread_title(trace, threads[place], observation.thread)
        else:
            title = _stream_title(trace, int(streams[place - len(threads)]))
        lanes.append(_lane(trace, title, taken(both, both.lane == place), names, window))
    return StepTrace(tuple(trace.names[each] for each in names.tolist()), _KINDS, tuple(lanes))


def _on_host(observation: Observation, threads: Sequence[int], window: tuple[int, int]) -> _Events:
    events = observation.trace.events
    rows = events.rows(Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME)
    rows = rows[(events.start_ns[rows] < window[1]) & (events.end_ns[rows] > window[0])]
    rows = rows[among(events.thread[rows], np.array(threads, dtype=np.int64))]
    names = observation.trace.names
    marks = [each for each in numbers_in(events.name_id[rows]) if is_step_mark(names[each])]
    rows = rows[~among(events.name_id[rows], np.array(marks, dtype=np.int64))]
    order = np.argsort(threads)
    lane = order[np.searchsorted(np.asarray(threads)[order], events.thread[rows])]
    launch = np.full(rows.size, NONE, dtype=np.int64)
    return _Events(
        rows, lane, _host_kinds(observation, rows), launch, _longest(events, rows, window, _MOST_HOST_EVENTS)
    )


def _host_kinds(observation: Observation, rows: Int64) -> Int64:
    trace, events = observation.trace, observation.trace.events
    kind = np.full(rows.size, _KINDS.index(Activity.OPERATOR), dtype=np.int64)
    calls = events.kind[rows] == Kind.RUNTIME
    waits = calls & observation.blocked.contains(events.start_ns[rows])
    kind[calls] = _KINDS.index(Activity.RUNTIME_CALL)
    kind[waits] = _KINDS.index(Activity.BLOCKED)
    ranges = events.kind[rows] == Kind.ANNOTATION
    kind[ranges & observation.loading.contains(events.start_ns[rows])] = _KINDS.index(Activity.LOADING)
    optimizer = [number for number, text in enumerate(trace.names) if text.startswith("Optimizer.step")]
    kind[ranges & among(events.name_id[rows], np.array(optimizer, dtype=np.int64))] = _KINDS.index(Activity.OPTIMIZER)
    kind[among(rows, _cpu_collective_rows(observation))] = _KINDS.index(Category.COMMUNICATION)
    return kind


def _on_device(observation: Observation, window: tuple[int, int]) -> _Events:
    """Return the GPU operations of the busiest streams, with their streams as lanes."""
    events, launches = observation.trace.events, observation.launches
    rows = launches.work_rows
    inside = np.flatnonzero((events.start_ns[rows] < window[1]) & (events.end_ns[rows] > window[0]))
    if inside.size:
        stream = events.stream[rows[inside]]
        busy_ns = np.bincount(stream + 1, weights=events.duration_ns[rows[inside]])
        inside = inside[among(stream, np.argsort(-busy_ns, kind="stable")[:_MOST_STREAMS] - 1)]
    rows = rows[inside]
    known = {kind.value: _KINDS.index(category) for category, kinds in DEVICE_PRECEDENCE for kind in kinds}
    kind = np.array([known[each] for each in events.kind[rows].tolist()], dtype=np.int64)
    is_kept = _longest(events, rows, window, _MOST_DEVICE_EVENTS)
    return _Events(rows, events.stream[rows].astype(np.int64), kind, launches.call_rows[inside], is_kept)


def _longest(events: EventTable, rows: Int64, window: tuple[int, int], most: int) -> Mask:
    """Return which events are among the longest by their time in the window."""
    inside_ns = np.minimum(events.end_ns[rows], window[1]) - np.maximum(events.start_ns[rows], window[0])
    is_kept = np.zeros(rows.size, dtype=np.bool_)
    is_kept[np.argsort(-inside_ns, kind="stable")[:most]] = True
    return is_kept


def _lane(trace: Trace, title: str, events: _Events, names: Int64, window: tuple[int, int]) -> TraceLane:
    start = np.maximum(trace.events.start_ns[events.rows], window[0]) - window[0]
    end = np.minimum(trace.events.end_ns[events.rows], window[1]) - window[0]
    order = np.lexsort((start - end, start))
    start, end, events = start[order], end[order], taken(events, order)
    depth = _depths(parents_of(start, end, np.zeros(start.size, dtype=np.int32)))
    shown = events.is_kept & (depth <= DEEPEST_SHOWN)
    name = np.searchsorted(names, trace.events.name_id[events.rows])
    columns = (start, end - start, name, events.kind, depth, events.rows, events.launch)
    left_out = np.bincount(start[~shown] * PARTS // (window[1] - window[0]), minlength=PARTS)
    return TraceLane(title, *(*(column[shown].astype(np.int64) for column in columns), left_out))


def _depths(parents: Int64) -> Int64:
    """Return how many events are around each one."""
    depths: Int64 = (parents != NONE).astype(np.int64)
    above = parents.copy()
    while (inner := np.flatnonzero(above != NONE)).size:  # twice as many levels each time
        depths[inner] += depths[above[inner]]
        above[inner] = above[above[inner]]
    return depths
