"""Sets of time spans and their algebra.

A :class:`SpanSet` is a set of instants written as disjoint, sorted, half-open
spans ``[start, end)`` of integer nanoseconds. Every number of the step
breakdown is the total of such a set: overlaps are resolved here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask, read_only


@frozen(eq=False)
class SpanSet:
    """Disjoint half-open spans, sorted by start, none empty, none touching the next.

    Build one with :meth:`union_of` or :meth:`of`; the constructor trusts its arguments and makes them read-only.
    """

    starts_ns: Int64
    """Shape ``(n,)``, ascending."""

    ends_ns: Int64
    """Shape ``(n,)``; ``starts_ns[i] < ends_ns[i] < starts_ns[i + 1]``."""

    def __post_init__(self) -> None:
        read_only(self.starts_ns, self.ends_ns)

    @property
    def is_valid(self) -> bool:
        """Whether the arrays have the properties of the class."""
        starts, ends = self.starts_ns, self.ends_ns
        alike = starts.dtype == ends.dtype == np.int64 and starts.ndim == 1 and starts.shape == ends.shape
        return alike and bool((starts < ends).all() and (ends[:-1] < starts[1:]).all())

    @staticmethod
    def empty() -> SpanSet:
        """The empty set."""
        return _EMPTY

    @staticmethod
    def of(*spans: tuple[int, int]) -> SpanSet:
        """Union of a few ``(start, end)`` pairs."""
        pairs = np.array(spans, dtype=np.int64).reshape(-1, 2)
        return SpanSet.union_of(pairs[:, 0], pairs[:, 1])

    @staticmethod
    def union_of(starts_ns: Int64, ends_ns: Int64) -> SpanSet:
        """Union of any spans: unsorted, overlapping or touching. Empty and negative ones are ignored."""
        if not starts_ns.size:
            return _EMPTY
        filled = ends_ns > starts_ns
        starts, ends = starts_ns, ends_ns
        if np.count_nonzero(filled) < filled.size:
            starts, ends = starts_ns[filled], ends_ns[filled]
        if starts.size < 2:
            return SpanSet(starts, ends) if starts.size else _EMPTY
        if np.count_nonzero(starts[1:] < starts[:-1]):
            order = starts.argsort(kind="stable")
            starts, ends = starts[order], ends[order]
        ends = np.maximum.accumulate(ends)
        is_edge = np.empty(starts.size + 1, dtype=np.bool_)
        is_edge[0] = is_edge[-1] = True
        np.greater(starts[1:], ends[:-1], out=is_edge[1:-1])
        return SpanSet(starts[is_edge[:-1]], ends[is_edge[1:]])

    @staticmethod
    def union_all(sets: Iterable[SpanSet]) -> SpanSet:
        """Union of several sets."""
        parts = [part for part in sets if part]
        if len(parts) < 2:
            return parts[0] if parts else SpanSet.empty()
        return SpanSet.union_of(
            np.concatenate([part.starts_ns for part in parts]), np.concatenate([part.ends_ns for part in parts])
        )

    @property
    def total_ns(self) -> int:
        """Length of the set in nanoseconds."""
        starts, ends = self.starts_ns, self.ends_ns
        return int((ends - starts).sum() if starts.size >= _FEW else sum(ends.tolist()) - sum(starts.tolist()))

    def __len__(self) -> int:
        return int(self.starts_ns.size)

    def __bool__(self) -> bool:
        return self.starts_ns.size > 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts_ns.tolist(), self.ends_ns.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SpanSet):
            return NotImplemented
        return np.array_equal(self.starts_ns, other.starts_ns) and np.array_equal(self.ends_ns, other.ends_ns)

    __hash__ = None  # type: ignore[assignment]  # arrays inside: equal sets may not share a hash

    def __or__(self, other: SpanSet) -> SpanSet:
        if not self.starts_ns.size or not other.starts_ns.size:
            return self if self.starts_ns.size else other
        return SpanSet.union_of(
            np.concatenate((self.starts_ns, other.starts_ns)), np.concatenate((self.ends_ns, other.ends_ns))
        )

    def __and__(self, other: SpanSet) -> SpanSet:
        if other.starts_ns.size == 1:  # as the windows of steps that follow each other
            return self.clip(int(other.starts_ns[0]), int(other.ends_ns[0]))
        return _common(self.starts_ns, self.ends_ns, other.starts_ns, other.ends_ns)

    def __sub__(self, other: SpanSet) -> SpanSet:
        if not self.starts_ns.size or not other.starts_ns.size:
            return self
        starts, ends = np.concatenate((_FIRST, other.ends_ns)), np.concatenate((other.starts_ns, _LAST))
        return _common(self.starts_ns, self.ends_ns, starts, ends)

    def clip(self, start_ns: int, end_ns: int) -> SpanSet:
        """The part inside ``[start_ns, end_ns)``."""
        if not self.starts_ns.size:
            return _EMPTY
        if start_ns <= self.starts_ns[0] and self.ends_ns[-1] <= end_ns:
            return self
        first = int(self.ends_ns.searchsorted(start_ns, side="right"))
        last = int(self.starts_ns.searchsorted(end_ns, side="left"))
        if first >= last or start_ns >= end_ns:
            return _EMPTY
        return SpanSet(np.maximum(self.starts_ns[first:last], start_ns), np.minimum(self.ends_ns[first:last], end_ns))

    def gaps(self, start_ns: int, end_ns: int) -> SpanSet:
        """The part of ``[start_ns, end_ns)`` outside the set."""
        return SpanSet.of((start_ns, end_ns)) - self

    def lasting(self, least_ns: float) -> SpanSet:
        """Spans of at least this length."""
        chosen = self.ends_ns - self.starts_ns >= least_ns
        return SpanSet(self.starts_ns[chosen], self.ends_ns[chosen])

    def contains(self, instants_ns: Int64) -> Mask:
        """Whether each instant is in the set; same shape as ``instants_ns``."""
        if not self.starts_ns.size:
            return np.zeros(instants_ns.shape, dtype=np.bool_)
        begun = self.starts_ns.searchsorted(instants_ns, side="right")
        found: Mask = instants_ns < np.concatenate((_FIRST, self.ends_ns))[begun]
        return found

    def measure_until(self, instants_ns: Int64) -> Int64:
        """Length of the part of the set before each instant; same shape as ``instants_ns``."""
        if not self.starts_ns.size:
            return np.zeros(instants_ns.shape, dtype=np.int64)
        return self._until(instants_ns, *self._lengths())

    def measure_in(self, starts_ns: Int64, ends_ns: Int64) -> Int64:
        """Length of the part of the set from each start to its end; same shape as both."""
        if not self.starts_ns.size:
            return np.zeros(starts_ns.shape, dtype=np.int64)
        until = self._until(np.concatenate((starts_ns, ends_ns)), *self._lengths())
        return until[starts_ns.size :] - until[: starts_ns.size]

    def _lengths(self) -> tuple[Int64, Int64]:
        """The end of each span, and the length of the set until then; both begin before all spans."""
        ends = np.concatenate((_FIRST, self.ends_ns))
        done = np.zeros(ends.size, dtype=np.int64)
        (self.ends_ns - self.starts_ns).cumsum(out=done[1:])
        return ends, done

    def _until(self, instants_ns: Int64, ends: Int64, done: Int64) -> Int64:
        begun = self.starts_ns.searchsorted(instants_ns, side="right")
        before: Int64 = done[begun] - np.maximum(ends[begun] - instants_ns, 0)
        return before


_FIRST, _LAST = (np.array([instant], dtype=np.int64) for instant in (-(1 << 62), 1 << 62))
"""Instants before and after all of a trace."""

_FEW = 64
"""Fewer numbers are added up faster one by one."""

_EMPTY = SpanSet(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def _common(starts: Int64, ends: Int64, other_starts: Int64, other_ends: Int64) -> SpanSet:
    """The intersection of two sets."""
    if not starts.size or not other_starts.size:  # as half of all in a small recording
        return _EMPTY
    if other_starts.size < starts.size:  # searching for a few spans among many takes less time
        starts, ends, other_starts, other_ends = other_starts, other_ends, starts, ends
    # Each span overlaps those of the other set that end after its start and start before its end.
    last = other_starts.searchsorted(ends, side="left")
    counts = last - other_ends.searchsorted(starts, side="right")
    upto = counts.cumsum()
    count = int(upto[-1])
    if not count:
        return _EMPTY
    theirs = np.arange(count) + (last - upto).repeat(counts)
    return SpanSet(
        np.maximum(starts.repeat(counts), other_starts[theirs]), np.minimum(ends.repeat(counts), other_ends[theirs])
    )
