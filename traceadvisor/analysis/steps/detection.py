"""Detects the training steps: where one ends on the host and the next begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_named, rows_with_prefix
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.steps.compiled_calls import compiled_calls
from traceadvisor.analysis.steps.inference_workload import inference_sign, is_prefill, iteration_spans, serving_rows
from traceadvisor.analysis.steps.optimizer_rounds import iteration_ends
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.once import once
from traceadvisor.model.steps import StepSource
from traceadvisor.model.trace import Trace

_MARK = re.compile(r"^ProfilerStep#(\d{1,18})$")
"""The number fits 64 bits."""


@frozen
class Mark:
    """One step on the host."""

    index: int
    start_ns: int
    end_ns: int

    @property
    def span(self) -> tuple[int, int]:
        """From its start to its end."""
        return self.start_ns, self.end_ns


def find_marks(trace: Trace) -> tuple[StepSource, tuple[Mark, ...]]:
    """Return the step marks; else the spans between optimizer or compiled steps; else the whole recording.

    In an inference recording, the iterations of its engine come before step marks that hold several of them.
    """
    marks, iterations = _profiler_marks(trace), _iterations(trace)
    if len(iterations) > len(marks):
        return StepSource.SERVING, iterations
    if marks:
        return StepSource.MARKS, marks
    marks = _optimizer_marks(trace)
    if marks:
        return StepSource.OPTIMIZER, marks
    if trace.framework and (called := trace.events.start_ns[compiled_calls(trace)].tolist()):
        return StepSource.COMPILED, tuple(Mark(number, *pair) for number, pair in enumerate(pairwise(called), 1))
    return StepSource.WINDOW, () if trace.is_empty else (Mark(0, *recording_extent(trace)),)


def is_step_mark(name: str) -> bool:
    """Whether an event is a step mark of torch's profiler."""
    return _MARK.match(name) is not None


def _profiler_marks(trace: Trace) -> tuple[Mark, ...]:
    """Return ``ProfilerStep#N`` marks of the host, clipped to the profiler's span; GPU copies of marks do not count."""
    events = trace.events
    rows = rows_named(trace, Kind.ANNOTATION, _MARK.match)
    rows = rows[events.thread[rows] == events.thread[rows[:1]]] if rows.size else rows
    spans = events.rows(Kind.PROFILER_SPAN)
    latest = int(events.end_ns[spans].max()) if spans.size else np.iinfo(np.int64).max
    marks = []
    for row in rows.tolist():
        match = _MARK.match(trace.names[events.name_id[row]])
        start, end = int(events.start_ns[row]), min(int(events.end_ns[row]), latest)
        if match and start < end:
            marks.append(Mark(int(match[1]), start, end))
    return tuple(marks)


def _iterations(trace: Trace) -> tuple[Mark, ...]:
    """Return marks from the start of one iteration to the next, the last to its own end; none without inference."""
    if inference_sign(trace) is None:
        return ()
    starts, ends = iteration_spans(trace)
    until = np.append(starts[1:], ends[-1:]).tolist()
    spans = [span for span in zip(starts.tolist(), until, strict=True) if span[0] < span[1]]
    return tuple(Mark(number, *span) for number, span in enumerate(spans, 1))


def serving_kinds(trace: Trace, starts_ns: Sequence[int]) -> list[bool | None]:
    """Return whether the iteration that starts at each instant processes prompts; None if its mark does not say."""
    events = trace.events
    rows = serving_rows(trace)
    known = {int(events.start_ns[row]): is_prefill(trace.names[events.name_id[row]]) for row in rows.tolist()}
    return [known.get(start) for start in starts_ns]


def _optimizer_marks(trace: Trace) -> tuple[Mark, ...]:
    """Return marks from the end of one iteration to that of the next, found from the optimizer steps in them.

    A single optimizer step that runs the training passes in a closure is a whole step.
    """
    events, steps = trace.events, optimizer_steps(trace)
    rows = steps.outermost
    if rows.size == 1 and steps.has_closure:  # so it takes time
        row = int(rows[0])
        return (Mark(1, int(events.start_ns[row]), int(events.end_ns[row])),)
    if rows.size < 2:
        return ()
    ends = np.unique(iteration_ends(trace, rows)).tolist()
    return tuple(Mark(number, *pair) for number, pair in enumerate(pairwise(ends), 1))


@once
def recording_extent(trace: Trace) -> tuple[int, int]:
    """Return the first and the last instant of known events.

    The profiler's own span may be longer: nothing shows what runs in the rest of it. A file without other events is
    refused.
    """
    if trace.is_empty:
        return 0, 0
    events, calls = trace.events, trace.python_calls
    known = ~events.is_kind(Kind.OTHER, Kind.PROFILER_SPAN)
    latest = np.iinfo(np.int64).max
    start = min(np.min(events.start_ns, where=known, initial=latest), np.min(calls.start_ns, initial=latest))
    end = max(np.max(events.end_ns, where=known, initial=0), np.max(calls.end_ns, initial=0))
    return int(start), int(end)


def position_at(spans: Sequence[tuple[int, int]], instants_ns: Int64) -> Int64:
    """Return the position of the span that holds each instant, the later of overlapping ones; NONE outside all."""
    if not spans:
        return np.full(instants_ns.shape, NONE, dtype=np.int64)
    starts, ends = np.array(spans, dtype=np.int64).T
    position = np.searchsorted(starts, instants_ns, side="right") - 1
    return np.where((position >= 0) & (instants_ns < ends[position]), position, NONE)


def steps_of_another_kind(trace: Trace, marks: tuple[Mark, ...]) -> list[int]:
    """Return positions of steps without a backward pass if most steps have one, for example validation.

    If most steps have none, it may be hidden (a CUDA graph has no operators), and no step is singled out.
    """
    rows = rows_with_prefix(trace, Kind.OPERATOR, BACKWARD_PREFIX)
    holders = position_at([mark.span for mark in marks], trace.events.start_ns[rows])
    without = np.bincount(holders[holders != NONE], minlength=len(marks)) == 0
    return np.flatnonzero(without).tolist() if 2 * without.sum() < len(marks) else []
