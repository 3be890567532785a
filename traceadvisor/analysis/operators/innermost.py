"""The innermost or outermost of nested calls at each instant of a thread."""

from __future__ import annotations

from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int32, Int64, Mask, read_only
from traceadvisor.model.events import NONE, EventTable, Kind
from traceadvisor.model.trace import Trace

_MOST_INT32 = 1 << 30
"""Fewer calls are numbered in 32 bits, which takes half the memory."""

_FEW_LEVELS = 1 << 15
"""Depths below it fit 16 bits, which numpy sorts in linear time."""


@frozen(eq=False)
class Course:
    """Innermost event on one thread: from each bound on, until the next. Both arrays of shape ``(n,)``."""

    bounds_ns: Int64
    """Ascending."""

    calls: Int32 | Int64
    """Position of a call; NONE if nothing runs."""

    around: Int32 | Int64
    """For each call, in order of start, the one that it began in; NONE without one. Empty for outermost calls."""

    def __post_init__(self) -> None:
        read_only(self.bounds_ns, self.calls, self.around)

    def at(self, instants_ns: Int64) -> Int64:
        """Return the call that runs at each instant; NONE if there is none."""
        return self.call_at(self.places(instants_ns))

    def bounds_in(self, start_ns: int, end_ns: int) -> Int64:
        """Return the bounds from one instant to another."""
        first, last = self.bounds_ns.searchsorted((start_ns, end_ns))
        return self.bounds_ns[first:last]

    def places(self, instants_ns: Int64) -> Int64:
        """Return how many bounds are not after each instant: the number of the stretch in which nothing changes."""
        return self.bounds_ns.searchsorted(instants_ns, side="right")

    def call_at(self, places: Int64) -> Int64:
        """Return the call that runs in each of those stretches; NONE if there is none."""
        if not self.calls.size:
            return np.full(places.shape, NONE, dtype=np.int64)
        return np.where(places > 0, self.calls[places - 1], NONE).astype(np.int64, copy=False)


@frozen(eq=False)
class ThreadCalls:
    """Calls of several threads, such as operators or Python calls; arrays of shape ``(n,)``."""

    start_ns: Int64
    end_ns: Int64
    thread: Int32 | Int64
    outermost: bool = False
    """Whether :meth:`at` gives the outermost call instead of the innermost."""

    _courses: dict[int, Course] = field(default_factory=dict)
    _rows: dict[int, Int64] = field(default_factory=dict)
    """Positions of the calls of each thread, in order of start, without calls that take no time."""

    _slices: dict[int, Int64] = field(default_factory=dict)

    def around(self) -> Int64:
        """Return the call that each call began in; NONE without one, and for calls that take no time."""
        result = np.full(self.start_ns.size, NONE, dtype=np.int64)
        for thread in self._by_thread():
            course, rows = self.course(thread), self._rows[thread]
            result[rows] = np.concatenate((rows, [NONE]))[course.around]
        return result

    def course(self, thread: int) -> Course:
        """Return what runs on a thread; positions are those of the arrays."""
        if thread not in self._courses:
            rows = self._by_thread().get(thread, np.empty(0, np.int64))
            rows = rows[self.end_ns[rows] > self.start_ns[rows]]
            starts, ends = self.start_ns[rows], self.end_ns[rows]
            if ((starts[1:] < starts[:-1]) | ((starts[1:] == starts[:-1]) & (ends[1:] > ends[:-1]))).any():
                rows = rows[np.lexsort((-ends, starts))]
                starts, ends = self.start_ns[rows], self.end_ns[rows]
            course = (outermost_course if self.outermost else innermost_course)(starts, ends)
            positions: NDArray[Any] = np.concatenate((rows, [NONE])).astype(course.calls.dtype)
            self._rows[thread] = rows
            self._courses[thread] = replace(course, calls=positions[course.calls])
        return self._courses[thread]

    def at(self, threads: Int32 | Int64, instants_ns: Int64) -> Int64:
        """Return the call that runs on a thread at each instant; NONE if there is none."""
        found = np.full(instants_ns.shape, NONE, dtype=np.int64)
        for thread, asked in positions_by(threads).items():
            found[asked] = self.course(thread).at(instants_ns[asked])
        return found

    def _by_thread(self) -> dict[int, Int64]:
        if not self._slices and self.thread.size:
            self._slices.update(positions_by(self.thread))
        return self._slices


def positions_by(keys: Int32 | Int64) -> dict[int, Int64]:
    """Return the positions of each distinct key, ascending."""
    if not keys.size:
        return {}
    first = int(keys[0])
    if (keys == first).all():
        return {first: np.arange(keys.size)}
    order = keys.argsort(kind="stable")
    ordered = keys[order]
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1])).nonzero()[0]
    bounds = pairwise((*begins.tolist(), order.size))
    return {key: order[begin:end] for key, (begin, end) in zip(ordered[begins].tolist(), bounds, strict=True)}


def innermost_course(starts_ns: Int64, ends_ns: Int64) -> Course:
    """Return which call runs innermost: among those that run, the one that started last.

    ``starts_ns``: ascending, the longest call first among equal starts. ``ends_ns``: after the starts.
    """
    count = starts_ns.size
    if not count:
        return Course(*(np.empty(0, np.int64) for _ in range(3)))
    times = np.concatenate((ends_ns[::-1], starts_ns))  # inner calls first among equal ends, and before equal starts
    order = times.argsort(kind="stable")
    times, is_open = times[order], order >= count
    call: Int32 | Int64 = np.where(is_open, order - count, count - 1 - order)
    call = call.astype(np.int32) if count < _MOST_INT32 else call
    depth: NDArray[np.signedinteger] = np.where(is_open, 1, -1).cumsum()
    depth = depth.astype(np.int16) if depth.max() < _FEW_LEVELS else depth
    running = _last_opened(np.where(is_open, call, call.dtype.type(NONE)), depth)
    opens, closes = is_open.nonzero()[0], (~is_open).nonzero()[0]
    if not np.array_equal(running[closes - 1], call[closes]):
        return _overlapping_course(starts_ns, ends_ns)
    last = np.concatenate((times[1:] != times[:-1], [True]))
    around = np.where(opens > 0, running[opens - 1], NONE)
    return Course(times[last], running[last], around)


def _last_opened(opened: Int32 | Int64, depth: NDArray[np.signedinteger]) -> Int32 | Int64:
    """Return what runs after each event: the last call that opened at the depth after it."""
    by_depth = depth.argsort(kind="stable")
    of_group = opened[by_depth]
    latest = np.arange(depth.size, dtype=opened.dtype)
    latest[of_group == NONE] = 0
    np.maximum.accumulate(latest, out=latest)
    running = np.empty_like(opened)
    running[by_depth] = of_group[latest]
    running[depth == 0] = NONE
    return running


def _overlapping_course(starts_ns: Int64, ends_ns: Int64) -> Course:
    """Return the same, call by call, also for calls that overlap without being nested."""
    bounds: list[int] = []
    calls: list[int] = []
    around: list[int] = []
    running: list[tuple[int, int]] = []
    ends = (*ends_ns.tolist(), 0)
    for call, start in enumerate((*starts_ns.tolist(), int(ends_ns.max()))):
        while running and running[-1][0] <= start:
            until, _ = running.pop()
            while running and running[-1][0] <= until:  # ended earlier, below a call that overlapped it
                running.pop()
            bounds.append(until)
            calls.append(running[-1][1] if running else NONE)
        around.append(running[-1][1] if running else NONE)
        running.append((ends[call], call))
        bounds.append(start)
        calls.append(call)
    times = np.array(bounds[:-1], np.int64)  # the last call only ends all others
    last = np.concatenate((times[1:] != times[:-1], [True]))
    return Course(times[last], np.array(calls[:-1], np.int64)[last], np.array(around[:-1], np.int64))


def outermost_course(starts_ns: Int64, ends_ns: Int64) -> Course:
    """Return which call runs outermost: the one that started first, until it ends.

    ``starts_ns``: ascending, the longest call first among equal starts. ``ends_ns``: after the starts.
    """
    begins, chosen = first_come(starts_ns, ends_ns)
    stops = ends_ns[chosen]
    gap = np.concatenate((stops[:-1] < begins[1:], [True]))[: stops.size]
    bounds = np.concatenate((begins, stops[gap]))
    calls = np.concatenate((chosen, np.full(int(gap.sum()), NONE, np.int64)))
    order = bounds.argsort(kind="stable")
    return Course(bounds[order], calls[order], np.empty(0, np.int64))


def first_come(starts_ns: Int64, ends_ns: Int64) -> tuple[Int64, Int64]:
    """Split the union of spans: each instant belongs to the first span that covers it.

    ``starts_ns``: ascending. ``ends_ns``: of any order.

    Returns:
        The start of each part, and the position of its span. The part ends where its span ends.
    """
    if not starts_ns.size:
        return starts_ns, np.empty(0, np.int64)
    covered = np.append(starts_ns[0], np.maximum.accumulate(ends_ns)[:-1])
    begins = np.maximum(starts_ns, covered)
    chosen = (begins < ends_ns).nonzero()[0]
    return begins[chosen], chosen


def split(starts_ns: Int64, ends_ns: Int64, cuts_ns: Int64) -> tuple[Int64, Int64, Int64]:
    """Split spans at some instants.

    Args:
        starts_ns: shape ``(n,)``.
        ends_ns: after the starts, shape ``(n,)``.
        cuts_ns: ascending.

    Returns:
        Starts and ends of the parts, and the span that each is part of; all of shape ``(m,)``.
    """
    first = cuts_ns.searchsorted(starts_ns, side="right")
    last = cuts_ns.searchsorted(ends_ns, side="left")
    counts = np.maximum(last - first, 0) + 1
    parent = np.arange(starts_ns.size).repeat(counts)
    ordinal = np.arange(parent.size) - np.repeat(counts.cumsum() - counts, counts)
    cut = np.concatenate((cuts_ns, [0]))[np.minimum(first[parent] + ordinal, cuts_ns.size)]
    ends = np.where(ordinal == counts[parent] - 1, ends_ns[parent], cut)
    begins = np.where(ordinal == 0, starts_ns[parent], np.concatenate(([0], ends))[:-1])
    return begins, ends, parent


def overlapping(
    starts_ns: Int64, ends_ns: Int64, other_starts_ns: Int64, other_ends_ns: Int64
) -> tuple[Int64, Int64, Int64, Int64]:
    """Intersect two sorted lists of disjoint spans.

    Returns:
        Starts and ends of the intersections, and the positions of their spans in the first and the second list.
    """
    first = other_ends_ns.searchsorted(starts_ns, side="right")
    last = other_starts_ns.searchsorted(ends_ns, side="left")
    counts = np.maximum(last - first, 0)
    mine = np.arange(starts_ns.size).repeat(counts)
    theirs = np.arange(mine.size) - np.repeat(counts.cumsum() - counts, counts) + first.repeat(counts)
    begins = np.maximum(starts_ns[mine], other_starts_ns[theirs])
    ends = np.minimum(ends_ns[mine], other_ends_ns[theirs])
    return begins, ends, mine, theirs


def are_outermost(starts_ns: Int64, ends_ns: Int64) -> Mask:
    """Return whether each span, in order of start, begins after the end of all before it."""
    return np.append(starts_ns[:1] >= 0, starts_ns[1:] >= np.maximum.accumulate(ends_ns)[:-1])


def outermost_rows(events: EventTable, rows: Int64) -> Int64:
    """Return the rows, ascending, of the events that lie in no other one of their thread."""
    found = [rows[:0]]
    for mine in positions_by(events.thread[rows]).values():
        own = rows[mine][np.lexsort((-events.end_ns[rows[mine]], events.start_ns[rows[mine]]))]
        found.append(own[are_outermost(events.start_ns[own], events.end_ns[own])])
    return np.sort(np.concatenate(found))


def is_crossed(starts_ns: Int64, ends_ns: Int64, instants_ns: Int64) -> Mask:
    """Return whether an instant lies strictly inside each span; ``instants_ns`` is ascending."""
    first = instants_ns.searchsorted(starts_ns, side="right")
    crossed: Mask = instants_ns.searchsorted(ends_ns, side="left") > first
    return crossed


def backward_passes(trace: Trace, training: int, nodes: Int64) -> ThreadSpans:
    """Return the time of backward passes on other threads than the training thread, disjoint and in order.

    From one node to the next, the thread of the next node runs, if the training thread begins nothing in between.

    ``nodes``: rows of the nodes of backward passes, ascending.
    """
    events = trace.events
    nodes = nodes[events.thread[nodes] != training]
    starts, runs = first_come(events.start_ns[nodes], events.end_ns[nodes])
    ends = events.end_ns[nodes[runs]]
    host = events.rows(Kind.OPERATOR, Kind.RUNTIME, Kind.ANNOTATION)
    begun_ns = events.start_ns[host[events.thread[host] == training]]
    before = np.append(starts[:1], ends[:-1])
    goes_on = begun_ns.searchsorted(before) == begun_ns.searchsorted(starts)
    return ThreadSpans(events.thread[nodes[runs]], np.where(goes_on, before, starts), ends)
