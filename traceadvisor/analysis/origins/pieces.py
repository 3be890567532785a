"""Pieces of a recording, each with the one event that its time belongs to."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.observation import Observation, profiler_rows
from traceadvisor.analysis.operators.forward import backward_rows
from traceadvisor.analysis.operators.innermost import (
    ThreadCalls,
    first_come,
    overlapping,
    positions_by,
    split,
)
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.numbering import values_at
from traceadvisor.analysis.operators.runtime_calls import blocking_rows
from traceadvisor.analysis.steps.breakdown import DEVICE_PRECEDENCE, Partition
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Code, Int32, Int64, Mask, distinct, joined, one_of, taken
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.once import once
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

_WORK_KINDS = dict(DEVICE_PRECEDENCE)
_LATEST = np.iinfo(np.int64).max


class Holder(Code):
    """Kind of event that a piece of time belongs to."""

    WORK = 0
    """A GPU operation, which runs or was launched and has not started; the instant is that of its launch."""

    HOST = 1
    """Event that a thread runs at that time: an operator, a runtime call, an annotation or plain Python."""

    EVENT = 2
    """A given event: the profiler's work, or a collective on the CPU."""

    WAIT = 3
    """A call that waited for the GPU, until the GPU had no work left."""


@frozen(eq=False)
class Pieces:
    """Pieces of time; arrays of shape ``(n,)``."""

    start_ns: Int64
    end_ns: Int64
    holder: NDArray[np.int8]
    """A :class:`Holder`."""

    row: Int32 | Int64
    """Row of the event table; NONE for plain Python on the CPU."""

    item: Int64
    """Number of the event, or of the stretch of plain Python, that the piece belongs to."""

    thread: Int32 | Int64
    """The thread whose stack explains the piece; NONE if it was not recorded."""

    call: Int32 | Int64
    """The Python call that explains the piece, of those that were looked at; NONE without one."""

    def without(self, chosen: Mask) -> tuple[Self, Self]:
        """The pieces that were not chosen, and those that were."""
        if not chosen.any():
            return self, taken(self, np.empty(0, np.int64))
        return taken(self, ~chosen), taken(self, chosen)


IDLE = frozenset(Category) - frozenset(_WORK_KINDS)
"""Categories whose time mostly belongs to what the CPU does."""


class PieceFinder:
    """Splits categories into pieces, each with the event that its time belongs to.

    Busy time belongs to the GPU operation that runs; of several, to the one that started first. Idle time belongs to
    what the thread runs that launches the next operation, until that launch; then to the launched operation. Time after
    a wait for the GPU belongs to the wait.
    """

    def __init__(self, observation: Observation, python: ThreadCalls) -> None:
        """Take a recording, and those of its Python calls that are to be looked at."""
        self._observation, self._events, self._python = observation, observation.trace.events, python
        self._works: dict[Category, tuple[Int64, Int64, Int64]] = {}
        self._gaps: dict[int, int] = {}
        self._next_gap = len(self._events)

    def pieces(self, partition: Partition) -> Pieces:
        """Return the pieces of some categories, in order of time."""
        parts = [self.of_category(category, spans) for category, spans in partition.items() if spans]
        pieces = joined([*parts, self.nothing])
        return taken(pieces, pieces.start_ns.argsort(kind="stable"))

    @property
    def nothing(self) -> Pieces:
        """No pieces."""
        none = np.empty(0, np.int64)
        return Pieces(none, none, none.astype(np.int8), none, none, none, none)

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
        begins, work_ends, work = self._work(category)
        starts, ends, _, theirs = overlapping(spans.starts_ns, spans.ends_ns, begins, work_ends)
        return self._launched(starts, ends, work[theirs])

    def _work(self, category: Category) -> tuple[Int64, Int64, Int64]:
        """Return disjoint spans, and the GPU operation that each belongs to: its position among the launches."""
        if category not in self._works:
            events, launches = self._events, self._observation.launches
            chosen = one_of(events.kind[launches.work_rows], *_WORK_KINDS[category]).nonzero()[0]
            rows = launches.work_rows[chosen]
            begins, runs = first_come(events.start_ns[rows], events.end_ns[rows])
            self._works[category] = begins, events.end_ns[rows[runs]], chosen[runs]
        return self._works[category]

    def _launched(self, starts_ns: Int64, ends_ns: Int64, work: Int64) -> Pieces:
        """Return pieces that belong to GPU operations; ``work`` is their position among the launches."""
        launches = self._observation.launches
        return self._of_rows(starts_ns, ends_ns, launches.work_rows[work], Holder.WORK, launches.call_rows[work])

    # -- idle time -----------------------------------------------------------------------------------------------

    def _idle(self, category: Category, spans: SpanSet) -> Pieces:
        launches, events, work_starts = self._observation.launches, self._events, self._work_starts
        starts, ends, _ = split(spans.starts_ns, spans.ends_ns, work_starts)
        following = work_starts.searchsorted(ends)
        calls = np.where(following < work_starts.size, launches.call_rows[following % work_starts.size], NONE)
        returned = np.where(calls != NONE, events.end_ns[calls], np.iinfo(np.int64).max)
        cut = ends if category is Category.IDLE_SYNC else np.clip(returned, starts, ends)
        before, after = cut > starts, ends > cut
        launched = self._launched(cut[after], ends[after], following[after])
        starts, ends, calls = starts[before], cut[before], calls[before]
        thread = np.where(calls != NONE, events.thread[calls], self._observation.thread).astype(np.int64)
        if category is Category.IDLE_PROFILER:
            rest = self._by_events(starts, ends, profiler_rows(self._observation.trace), thread)
        elif category is Category.IDLE_SYNC:
            rest = self._after_wait(starts, ends, thread)
        else:
            rest = self._host(starts, ends, thread)
        return joined([launched, rest])

    @cached_property
    def _work_starts(self) -> Int64:
        return self._events.start_ns[self._observation.launches.work_rows]

    def _after_wait(self, starts_ns: Int64, ends_ns: Int64, thread: Int64) -> Pieces:
        """Return pieces that belong to the waits; without a recorded one, to what the thread runs."""
        place = self._dry_ns.searchsorted(starts_ns, side="right") - 1
        row = self._waits.at(np.zeros(starts_ns.size, np.int64), self._dry_ns[np.maximum(place, 0)])
        known = (row != NONE) & (place >= 0)
        found = self._of_rows(starts_ns[known], ends_ns[known], self._wait_rows[row[known]], Holder.WAIT)
        return joined([found, self._host(starts_ns[~known], ends_ns[~known], thread[~known])])

    @cached_property
    def _dry_ns(self) -> Int64:
        """When the GPU ran out of work, or started an operation that takes no time."""
        busy = self._events.spans(self._observation.launches.work_rows)
        return np.sort(np.concatenate((busy.ends_ns, self._work_starts)))

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
            return self._by_events(starts, ends, self._collective_rows, training)
        if category is Category.BACKWARD:
            return self._by_threads(starts, ends, self._backward_rows, training)
        return self._host(starts, ends, training)

    @cached_property
    def _collective_rows(self) -> Int64:
        return host_collective_rows(self._observation.trace)

    @cached_property
    def _backward_rows(self) -> Int64:
        return backward_rows(self._observation.trace)

    def _by_threads(self, starts_ns: Int64, ends_ns: Int64, rows: Int64, thread: Int64) -> Pieces:
        """Return pieces by what the threads of some events run; the rest by what another thread runs."""
        starts, ends, held_by, left_thread = self._held(starts_ns, ends_ns, rows, thread)
        threads = np.where(held_by == NONE, left_thread, values_at(self._events.thread, held_by))
        return self._host(starts, ends, threads)

    def _by_events(self, starts_ns: Int64, ends_ns: Int64, rows: Int64, thread: Int64) -> Pieces:
        """Return pieces that belong to events; the rest to what a thread runs."""
        starts, ends, held_by, left_thread = self._held(starts_ns, ends_ns, rows, thread)
        is_held = held_by != NONE
        left = ~is_held
        found = self._of_rows(starts[is_held], ends[is_held], held_by[is_held], Holder.EVENT)
        return joined([found, self._host(starts[left], ends[left], left_thread[left])])

    def _held(self, starts_ns: Int64, ends_ns: Int64, rows: Int64, thread: Int64) -> tuple[Int64, Int64, Int64, Int64]:
        """Split spans by the event that runs, of several the first; NONE where none runs.

        Returns:
            Starts, ends, the event of each part, and the thread of its span.
        """
        begins, runs = first_come(self._events.start_ns[rows], self._events.end_ns[rows])
        stops = self._events.end_ns[rows[runs]]
        starts, ends, parent = split(starts_ns, ends_ns, distinct(np.sort(np.concatenate((begins, stops)))))
        place = begins.searchsorted(starts, side="right") - 1
        is_held = (place >= 0) & (starts < values_at(stops, place))
        return starts, ends, np.where(is_held, values_at(rows[runs], place), NONE), thread[parent]

    def _of_rows(
        self, starts_ns: Int64, ends_ns: Int64, rows: Int64, holder: Holder, causes: Int64 | None = None
    ) -> Pieces:
        """Return pieces that belong to events; ``causes`` are the events that explain them, by default themselves."""
        causes = rows if causes is None else causes
        thread = values_at(self._events.thread, causes)
        call = self._python.at(thread, values_at(self._events.start_ns, causes))
        return Pieces(starts_ns, ends_ns, np.full(rows.size, holder, np.int8), rows, rows, thread, call)

    def _host(self, starts_ns: Int64, ends_ns: Int64, thread: Int64 | None = None) -> Pieces:
        """Return pieces by what a thread runs, by default the training thread; what that runs if the thread is idle.

        While the training thread only waits for the backward pass, they belong to the backward pass.
        """
        training = self._observation.thread
        pieces = self._running(
            starts_ns, ends_ns, np.full(starts_ns.size, training, dtype=np.int64) if thread is None else thread
        )
        pieces, idle = pieces.without((pieces.row == NONE) & (pieces.thread != training))
        instead = self._running(idle.start_ns, idle.end_ns, np.full(idle.start_ns.size, training, dtype=np.int64))
        pieces = joined([pieces, instead])
        if not self._observation.backward.start_ns.size:
            return pieces
        may_wait = ((pieces.row == NONE) | self._is_annotation(pieces.row)) & (pieces.thread == training)
        pieces, waiting = pieces.without(may_wait)
        return joined([pieces, self._backward_instead(waiting)])

    def _running(self, starts_ns: Int64, ends_ns: Int64, thread: Int64) -> Pieces:
        parts = [self.nothing]
        rows, spans = self._host_calls
        for number, mine in positions_by(thread).items():
            calls, python = spans.course(number), self._python.course(number)
            around = int(starts_ns[mine].min(initial=_LATEST)), int(ends_ns[mine].max(initial=0))
            cuts = np.concatenate((calls.bounds_in(*around), python.bounds_in(*around)))
            cuts.sort(kind="stable")
            starts, ends, _ = split(starts_ns[mine], ends_ns[mine], distinct(cuts))
            place = calls.places(starts)
            call = calls.call_at(place)
            row = values_at(rows, call)
            item = np.where(row == NONE, self._gap_numbers(number, calls.bounds_ns.size) + place, row)
            holder = np.full(starts.size, Holder.HOST, np.int8)
            parts.append(Pieces(starts, ends, holder, row, item, np.full(starts.size, number), python.at(starts)))
        return joined(parts)

    def _gap_numbers(self, thread: int, count: int) -> int:
        """Return the first number for stretches of plain Python of a thread."""
        if thread not in self._gaps:
            self._gaps[thread] = self._next_gap
            self._next_gap += count + 1
        return self._gaps[thread]

    @cached_property
    def _host_calls(self) -> tuple[Int64, ThreadCalls]:
        """Rows and spans of the calls of the CPU; all devices of a process share them."""
        trace = self._observation.trace
        return _shared_host_calls(trace) if len(trace.device_indices) > 1 else _host_calls(trace)

    def _is_annotation(self, rows: Int32 | Int64) -> Mask:
        """Whether each row is an annotation of the user; those of torch tell what runs."""
        events = self._events
        found: Mask = values_at(events.kind, rows) == Kind.ANNOTATION
        found[found] = self._is_users_name[events.name_id[rows[found]]]
        return found

    @cached_property
    def _is_users_name(self) -> Mask:
        return name_mask(self._observation.trace.names, lambda name: not name.startswith(("enumerate(", "Optimizer.")))

    def _backward_instead(self, pieces: Pieces) -> Pieces:
        """Return the same pieces; those in which another thread runs the backward pass belong to it."""
        passes = self._observation.backward
        cuts = np.concatenate((passes.start_ns, passes.end_ns))
        cuts.sort(kind="stable")
        starts, ends, parent = split(pieces.start_ns, pieces.end_ns, cuts)
        place = np.maximum(passes.start_ns.searchsorted(starts, side="right") - 1, 0)
        inside = (passes.start_ns[place] <= starts) & (starts < passes.end_ns[place])
        rest = replace(taken(pieces, parent[~inside]), start_ns=starts[~inside], end_ns=ends[~inside])
        threads = passes.thread[place[inside]].astype(np.int64)
        return joined([rest, self._running(starts[inside], ends[inside], threads)])


def _host_calls(trace: Trace) -> tuple[Int64, ThreadCalls]:
    """Return the rows of operators, runtime calls and annotations, without step marks, and their spans."""
    events = trace.events
    rows = events.rows(Kind.OPERATOR, Kind.RUNTIME, Kind.ANNOTATION)
    is_mark = name_mask(trace.names, lambda name: name.startswith("ProfilerStep#"))
    rows = rows[~is_mark[events.name_id[rows]]]
    return rows, ThreadCalls(events.start_ns[rows], events.end_ns[rows], events.thread[rows])


_shared_host_calls = once(_host_calls)
"""The same, kept with the trace: it takes memory as long as another device may need it."""
