"""Pieces of a recording, each with the one event that its time belongs to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cached_property
from typing import Self

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.innermost import (
    ThreadCalls,
    first_come,
    overlapping,
    positions_by,
    split,
)
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask, rows_named
from traceadvisor.analysis.operators.runtime_calls import blocking_rows
from traceadvisor.analysis.steps.breakdown import Partition
from traceadvisor.model.arrays import Int64, Mask, distinct
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet

_WORK_KINDS = {
    Category.KERNEL: (Kind.KERNEL,),
    Category.COMMUNICATION: (Kind.COLLECTIVE,),
    Category.H2D_COPY: (Kind.COPY_H2D,),
    Category.OTHER_COPY: (Kind.COPY_D2H, Kind.COPY_OTHER, Kind.MEMSET),
}
_NOT_THE_PROFILERS = ("Lazy Function Loading", "Command Buffer Full")


class Holder(IntEnum):
    """What kind of event a piece of time belongs to."""

    WORK = 0
    """A GPU operation, which runs or was launched and has not started; the instant is that of its launch."""

    HOST = 1
    """What a thread runs at that time: an operator, a runtime call, an annotation or plain Python."""

    EVENT = 2
    """A given event: the profiler's work, or a collective on the CPU."""

    WAIT = 3
    """A call that waited for the GPU, until the GPU had no work left."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Pieces of time; arrays of shape ``(n,)``."""

    start_ns: Int64
    end_ns: Int64
    holder: Int64
    """A :class:`Holder`."""

    row: Int64
    """Row of the event table; NONE for plain Python on the CPU."""

    thread: Int64
    """The thread whose stack explains the piece; NONE if it was not recorded."""

    instant_ns: Int64
    """The instant of that stack."""

    @classmethod
    def of(cls, spans: tuple[Int64, Int64], holder: Holder, row: Int64, thread: Int64, instant_ns: Int64) -> Self:
        """Pieces with one kind of holder."""
        kind = np.full(spans[0].size, holder, dtype=np.int64)
        return cls(*spans, kind, row, thread, instant_ns)

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """Several pieces in order of time."""
        columns = [np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)]
        order = np.argsort(columns[0], kind="stable")
        return cls(*(column[order] for column in columns))

    def taken(self, chosen: Int64 | Mask) -> Self:
        """Some of the pieces."""
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))


def find_pieces(observation: Observation, partition: Partition) -> Pieces:
    """Split all categories into pieces, each with the event that its time belongs to.

    Busy time belongs to the GPU operation that runs; of several, to the one that started first. Idle time belongs to
    what the thread runs that launches the next operation, until that launch; then to the launched operation. Time after
    a wait for the GPU belongs to the wait.
    """
    finder = _Finder(observation)
    parts = [finder.of_category(category, spans) for category, spans in partition.items() if spans]
    return Pieces.joined([*parts, finder.nothing])


class _Finder:
    def __init__(self, observation: Observation) -> None:
        self._observation, self._events = observation, observation.trace.events

    @property
    def nothing(self) -> Pieces:
        """No pieces."""
        none = np.empty(0, np.int64)
        return Pieces(none, none, none, none, none, none)

    def of_category(self, category: Category, spans: SpanSet) -> Pieces:
        """Return the pieces of a category."""
        if not self._observation.has_device:
            return self._on_host(category, spans)
        if category in _WORK_KINDS:
            return self._busy(category, spans)
        if category is Category.DATA_WAIT:
            return self._host(spans.starts_ns, spans.ends_ns)
        return self._idle(category, spans)

    # -- busy time -----------------------------------------------------------------------------------------------

    def _busy(self, category: Category, spans: SpanSet) -> Pieces:
        events, launches = self._events, self._observation.launches
        chosen = np.flatnonzero(np.isin(events.kind[launches.work_rows], _WORK_KINDS[category]))
        rows = launches.work_rows[chosen]
        begins, runs = first_come(events.start_ns[rows], events.end_ns[rows])
        work = chosen[runs]
        starts, ends, _, theirs = overlapping(
            spans.starts_ns, spans.ends_ns, begins, events.end_ns[launches.work_rows[work]]
        )
        return self._launched(starts, ends, work[theirs])

    def _launched(self, starts_ns: Int64, ends_ns: Int64, work: Int64) -> Pieces:
        """Return pieces that belong to GPU operations; ``work`` is their position among the launches."""
        launches, events = self._observation.launches, self._events
        calls = launches.call_rows[work]
        has_call = calls != NONE
        thread = np.where(has_call, events.thread[calls], NONE)
        instant = np.where(has_call, events.start_ns[calls], 0)
        return Pieces.of((starts_ns, ends_ns), Holder.WORK, launches.work_rows[work], thread, instant)

    # -- idle time -----------------------------------------------------------------------------------------------

    def _idle(self, category: Category, spans: SpanSet) -> Pieces:
        launches, events = self._observation.launches, self._events
        work_starts = events.start_ns[launches.work_rows]
        starts, ends, _ = split(spans.starts_ns, spans.ends_ns, distinct(work_starts))
        following = np.searchsorted(work_starts, ends)
        calls = np.append(launches.call_rows, NONE)[np.minimum(following, work_starts.size)]
        returned = np.where(calls != NONE, events.end_ns[calls], np.iinfo(np.int64).max)
        cut = ends if category is Category.IDLE_SYNC else np.clip(returned, starts, ends)
        before, after = cut > starts, ends > cut
        launched = self._launched(cut[after], ends[after], following[after])
        starts, ends, calls = starts[before], cut[before], calls[before]
        thread = np.where(calls != NONE, events.thread[calls], self._observation.thread).astype(np.int64)
        if category is Category.IDLE_PROFILER:
            rest = self._profiler(starts, ends, thread)
        elif category is Category.IDLE_SYNC:
            rest = self._after_wait(starts, ends, thread)
        else:
            rest = self._host(starts, ends, thread)
        return Pieces.joined([launched, rest])

    def _profiler(self, starts_ns: Int64, ends_ns: Int64, thread: Int64) -> Pieces:
        trace = self._observation.trace
        rows = rows_named(trace, Kind.OVERHEAD, lambda name: not name.startswith(_NOT_THE_PROFILERS))
        return self._by_events(starts_ns, ends_ns, rows, thread)

    def _after_wait(self, starts_ns: Int64, ends_ns: Int64, thread: Int64) -> Pieces:
        """Return pieces that belong to the waits; without a recorded one, to what the thread runs."""
        dry = np.concatenate((self._busy_spans.ends_ns, self._events.start_ns[self._observation.launches.work_rows]))
        dry = np.sort(dry)
        place = np.searchsorted(dry, starts_ns, side="right") - 1
        row = self._waits.at(np.zeros(starts_ns.size, np.int64), dry[np.maximum(place, 0)])
        known = (row != NONE) & (place >= 0)
        found = self._of_rows(starts_ns[known], ends_ns[known], self._wait_rows[row[known]], Holder.WAIT)
        return Pieces.joined([found, self._host(starts_ns[~known], ends_ns[~known], thread[~known])])

    @cached_property
    def _busy_spans(self) -> SpanSet:
        return self._events.spans(self._observation.launches.work_rows)

    @cached_property
    def _wait_rows(self) -> Int64:
        return blocking_rows(self._observation.trace, self._observation.launches)

    @cached_property
    def _waits(self) -> ThreadCalls:
        rows = self._wait_rows
        return ThreadCalls(self._events.start_ns[rows], self._events.end_ns[rows], np.zeros(rows.size, np.int64))

    # -- time on the host ----------------------------------------------------------------------------------------

    def _on_host(self, category: Category, spans: SpanSet) -> Pieces:
        starts, ends = spans.starts_ns, spans.ends_ns
        training = np.full(starts.size, self._observation.thread, dtype=np.int64)
        if category is Category.COMMUNICATION:
            return self._by_events(starts, ends, host_collective_rows(self._observation.trace), training)
        if category is Category.BACKWARD:
            nodes = self._backward_rows
            begins, runs = first_come(self._events.start_ns[nodes], self._events.end_ns[nodes])
            starts, ends, _, theirs = overlapping(starts, ends, begins, self._events.end_ns[nodes[runs]])
            return self._host(starts, ends, self._events.thread[nodes[runs[theirs]]].astype(np.int64))
        return self._host(starts, ends, training)

    @cached_property
    def _backward_rows(self) -> Int64:
        return rows_named(self._observation.trace, Kind.OPERATOR, lambda name: name.startswith(BACKWARD_PREFIX))

    def _by_events(self, starts_ns: Int64, ends_ns: Int64, rows: Int64, thread: Int64) -> Pieces:
        """Return pieces that belong to events; the rest to what a thread runs."""
        begins, runs = first_come(self._events.start_ns[rows], self._events.end_ns[rows])
        stops = self._events.end_ns[rows[runs]]
        starts, ends, _, theirs = overlapping(starts_ns, ends_ns, begins, stops)
        found = self._of_rows(starts, ends, rows[runs[theirs]], Holder.EVENT)
        union = SpanSet.union_of(begins, stops)
        left_starts, left_ends, parent = split(
            starts_ns, ends_ns, np.sort(np.concatenate((union.starts_ns, union.ends_ns)))
        )
        left = ~union.contains(left_starts)
        return Pieces.joined([found, self._host(left_starts[left], left_ends[left], thread[parent[left]])])

    def _of_rows(self, starts_ns: Int64, ends_ns: Int64, rows: Int64, holder: Holder) -> Pieces:
        thread, instant_ns = self._events.thread[rows].astype(np.int64), self._events.start_ns[rows]
        return Pieces.of((starts_ns, ends_ns), holder, rows, thread, instant_ns)

    def _host(self, starts_ns: Int64, ends_ns: Int64, thread: Int64 | None = None) -> Pieces:
        """Return pieces by what a thread runs, by default the training thread; what that runs if the thread is idle.

        While the training thread only waits for the backward pass, they belong to the backward pass.
        """
        training = self._observation.thread
        threads = np.full(starts_ns.size, training, dtype=np.int64) if thread is None else thread
        first = self._running(starts_ns, ends_ns, threads)
        idle = (first.row == NONE) & (first.thread != training)
        own = first.taken(idle)
        second = self._running(own.start_ns, own.end_ns, np.full(own.start_ns.size, training, dtype=np.int64))
        pieces = Pieces.joined([first.taken(~idle), second])
        is_gap = (pieces.row == NONE) | self._is_annotation(pieces.row)
        is_gap &= pieces.thread == training
        return Pieces.joined([pieces.taken(~is_gap), self._backward_instead(pieces.taken(is_gap))])

    def _running(self, starts_ns: Int64, ends_ns: Int64, thread: Int64) -> Pieces:
        parts = [self.nothing]
        for number, mine in positions_by(thread).items():
            course = self._calls.course(number)
            starts, ends, _ = split(starts_ns[mine], ends_ns[mine], course.bounds_ns)
            row = np.append(self._call_rows, NONE)[course.at(starts)]
            threads = np.full(starts.size, number, dtype=np.int64)
            parts.append(Pieces.of((starts, ends), Holder.HOST, row, threads, starts))
        return Pieces.joined(parts)

    @cached_property
    def _call_rows(self) -> Int64:
        """Operators, runtime calls and annotations, without step marks."""
        trace, events = self._observation.trace, self._events
        rows = events.rows(Kind.OPERATOR, Kind.RUNTIME, Kind.ANNOTATION)
        is_mark = name_mask(trace.names, lambda name: name.startswith("ProfilerStep#"))
        return rows[~is_mark[events.name_id[rows]]]

    @cached_property
    def _calls(self) -> ThreadCalls:
        rows = self._call_rows
        return ThreadCalls(self._events.start_ns[rows], self._events.end_ns[rows], self._events.thread[rows])

    def _is_annotation(self, rows: Int64) -> Mask:
        """Whether each row is an annotation of the user; those of torch tell what runs."""
        names = self._observation.trace.names
        users = name_mask(names, lambda name: not name.startswith(("enumerate(", "Optimizer.")))
        events = self._events
        found: Mask = (rows != NONE) & (events.kind[rows] == Kind.ANNOTATION) & users[events.name_id[rows]]
        return found

    def _backward_instead(self, pieces: Pieces) -> Pieces:
        """Return the same pieces; those in which another thread runs the backward pass belong to it."""
        nodes = self._backward_rows
        nodes = nodes[self._events.thread[nodes] != self._observation.thread]
        begins, runs = first_come(self._events.start_ns[nodes], self._events.end_ns[nodes])
        node_ends = self._events.end_ns[nodes[runs]]
        if not begins.size:
            return pieces
        starts, ends, parent = split(pieces.start_ns, pieces.end_ns, np.sort(np.concatenate((begins, node_ends))))
        place = np.maximum(np.searchsorted(begins, starts, side="right") - 1, 0)
        inside = (begins[place] <= starts) & (starts < node_ends[place])
        rest = pieces.taken(parent[~inside])
        waiting = Pieces(starts[~inside], ends[~inside], rest.holder, rest.row, rest.thread, starts[~inside])
        thread = self._events.thread[nodes[runs[place[inside]]]].astype(np.int64)
        return Pieces.joined([waiting, self._running(starts[inside], ends[inside], thread)])
