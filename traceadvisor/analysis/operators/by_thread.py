"""Spans of events of many threads, each compared with those of its own thread, in n log n for any number of threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from traceadvisor.model.arrays import Int32, Int64, Mask, taken
from traceadvisor.model.events import EventTable
from traceadvisor.model.spans import SpanSet

_MOST = 1 << 62
"""Positions on the axis of all threads stay below it."""


class Axis:
    """One axis for the instants of all threads: each thread has its own part, one behind the other."""

    def __init__(self, *spans: ThreadSpans) -> None:
        latest_ns = max(int(each.end_ns.max(initial=0)) for each in spans) + 1
        threads = max(int(each.thread.max(initial=0)) for each in spans) + 2
        self._times: Int64 | None = None
        self._length = latest_ns
        if latest_ns * threads >= _MOST:  # then their order takes the place of the instants
            self._times = np.unique(np.concatenate([part for each in spans for part in (each.start_ns, each.end_ns)]))
            self._length = self._times.size

    def at(self, threads: Int32 | Int64, instants_ns: Int64) -> Int64:
        """Return the place of each instant on the axis."""
        places = instants_ns if self._times is None else self._times.searchsorted(instants_ns)
        return threads.astype(np.int64, copy=False) * self._length + places


@dataclass(frozen=True, eq=False)
class ThreadSpans:
    """Spans of several threads; arrays of shape ``(n,)``."""

    thread: Int32 | Int64
    start_ns: Int64
    end_ns: Int64

    @staticmethod
    def of(events: EventTable, rows: Int64) -> ThreadSpans:
        """Return the spans of some events."""
        return ThreadSpans(events.thread[rows], events.start_ns[rows], events.end_ns[rows])

    def together(self) -> SpanSet:
        """Return the union of the spans of all threads."""
        return SpanSet.union_of(self.start_ns, self.end_ns)

    def inside(self, others: ThreadSpans) -> ThreadSpans:
        """Return the parts that lie in one of the others on the same thread.

        The parts of one span are disjoint; those of overlapping spans may overlap.
        """
        joined = others.joined
        first, last = self._met(others)
        mine, theirs = _pairs(first, np.where(self.end_ns > self.start_ns, last, first))
        return ThreadSpans(
            self.thread[mine],
            np.maximum(self.start_ns[mine], joined.start_ns[theirs]),
            np.minimum(self.end_ns[mine], joined.end_ns[theirs]),
        )

    def _met(self, others: ThreadSpans) -> tuple[Int64, Int64]:
        """The first of the joined others that ends after each span begins, and the first that begins at its end."""
        axis, joined = Axis(self, others), others.joined
        first = axis.at(joined.thread, joined.end_ns).searchsorted(axis.at(self.thread, self.start_ns), side="right")
        last = axis.at(joined.thread, joined.start_ns).searchsorted(axis.at(self.thread, self.end_ns), side="left")
        return first, last

    def outside(self, others: ThreadSpans) -> ThreadSpans:
        """Return the parts that lie in none of the others on the same thread."""
        joined = others.joined
        first, last = self._met(others)
        last = np.maximum(last, first)
        mine, before = _pairs(first, last + 1)  # the part before each of the others, and the one after the last
        is_first, is_last = before == first[mine], before == last[mine]
        begins = np.where(is_first, self.start_ns[mine], np.concatenate((joined.end_ns, [0]))[before - 1])
        stops = np.where(is_last, self.end_ns[mine], np.concatenate((joined.start_ns, [0]))[before])
        filled = stops > begins
        return ThreadSpans(self.thread[mine[filled]], begins[filled], stops[filled])

    def hold(self, threads: Int32 | Int64, instants_ns: Int64) -> Mask:
        """Return whether each instant lies in one of the spans of its thread; shape of the instants."""
        if not instants_ns.size or not (self.end_ns > self.start_ns).any():
            return np.zeros(instants_ns.shape, dtype=np.bool_)
        axis = Axis(self, ThreadSpans(threads, instants_ns, instants_ns + 1))
        joined = self.joined
        places = axis.at(threads, instants_ns)
        before = axis.at(joined.thread, joined.start_ns).searchsorted(places, side="right") - 1
        held: Mask = (before >= 0) & (places < axis.at(joined.thread, joined.end_ns)[np.maximum(before, 0)])
        return held

    def meet(self, others: ThreadSpans) -> Mask:
        """Return whether each span overlaps one of the others on the same thread; shape ``(n,)``.

        Spans without length count as the instant that they begin at.
        """
        axis = Axis(self, others)
        starts, ends = axis.at(self.thread, self.start_ns), axis.at(self.thread, self.end_ns)
        order = axis.at(others.thread, others.start_ns).argsort(kind="stable")
        other_starts = axis.at(others.thread, others.start_ns)[order]
        latest = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(axis.at(others.thread, others.end_ns)[order]))
        meets: Mask = latest[other_starts.searchsorted(ends, side="left")] > starts
        return meets

    @cached_property
    def joined(self) -> ThreadSpans:
        """The union of the spans of each thread, by thread and start; empty spans are left out."""
        axis, spans = Axis(self), self
        starts = axis.at(self.thread, self.start_ns)
        if (starts[1:] < starts[:-1]).any():
            order = starts.argsort(kind="stable")
            spans, starts = taken(self, order), starts[order]
        if not starts.size:
            return spans
        ends = np.maximum.accumulate(axis.at(spans.thread, spans.end_ns))
        opens = np.concatenate(([True], starts[1:] > ends[:-1])).nonzero()[0]
        joined = ThreadSpans(spans.thread[opens], spans.start_ns[opens], np.maximum.reduceat(spans.end_ns, opens))
        return taken(joined, joined.end_ns > joined.start_ns)


def _pairs(first: Int64, last: Int64) -> tuple[Int64, Int64]:
    """Return each place, and each number from its first up to, not including, its last one."""
    counts = np.maximum(last - first, 0)
    mine = np.arange(first.size).repeat(counts)
    numbers = np.arange(mine.size) - np.repeat(counts.cumsum() - counts, counts) + first.repeat(counts)
    return mine, numbers
