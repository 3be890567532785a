"""The timeline of the representative step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.steps.breakdown import Partition
from traceadvisor.analysis.steps.step_trace import cpu_collective_rows, step_trace, stream_title, thread_title
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import EventTable, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step, StepTable
from traceadvisor.model.timeline import Activity, Lane, Timeline
from traceadvisor.model.trace import Trace

MOST_HOST_LANES = 4
MOST_STREAM_LANES = 6

_STREAM_KINDS = (
    (Category.OTHER_COPY, (Kind.COPY_D2H, Kind.COPY_OTHER, Kind.MEMSET)),
    (Category.H2D_COPY, (Kind.COPY_H2D,)),
    (Category.COMMUNICATION, (Kind.COLLECTIVE,)),
    (Category.KERNEL, (Kind.KERNEL,)),
)


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
    is_shown[cpu_collective_rows(observation)] = True
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
            lanes.append(Lane(thread_title(trace, number, observation.thread), spans))
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
        Category.COMMUNICATION: of(cpu_collective_rows(observation)),
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
            stream_title(trace, number),
            _stream_spans(events, rows[events.stream[rows] == number], window),
        )
        for number in busiest[:MOST_STREAM_LANES]
    )


def _stream_spans(events: EventTable, rows: Int64, window: tuple[int, int]) -> Mapping[Category | Activity, SpanSet]:
    return {
        category: events.spans(rows[np.isin(events.kind[rows], members)]).clip(*window)
        for category, members in _STREAM_KINDS
    }
