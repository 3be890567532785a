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
        none = np.empty(0, dtype=np.int64)
        return SpanSet(none, none)

    @staticmethod
    def of(*spans: tuple[int, int]) -> SpanSet:
        """Union of a few ``(start, end)`` pairs."""
        pairs = np.array(spans, dtype=np.int64).reshape(-1, 2)
        return SpanSet.union_of(pairs[:, 0], pairs[:, 1])

    @staticmethod
    def union_of(starts_ns: Int64, ends_ns: Int64) -> SpanSet:
        """Union of any spans: unsorted, overlapping or touching. Empty and negative ones are ignored."""
        filled = ends_ns > starts_ns
        starts, ends = (starts_ns, ends_ns) if filled.all() else (starts_ns[filled], ends_ns[filled])
        if starts.size == 0:
            return SpanSet.empty()
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts, kind="stable")
            starts, ends = starts[order], ends[order]
        ends = np.maximum.accumulate(ends)
        opens = np.concatenate(([True], starts[1:] > ends[:-1]))
        closes = np.concatenate((opens[1:], [True]))
        return SpanSet(starts[opens], ends[closes])

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
        return int((self.ends_ns - self.starts_ns).sum())

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
        return SpanSet.union_all((self, other))

    def __and__(self, other: SpanSet) -> SpanSet:
        if not self or not other:
            return SpanSet.empty()
        if len(other) < len(self):  # searching for a few spans among many takes less time
            return other & self
        # Each span of `self` overlaps the spans of `other` that end after its start and start before its end.
        first = np.searchsorted(other.ends_ns, self.starts_ns, side="right")
        last = np.searchsorted(other.starts_ns, self.ends_ns, side="left")
        counts = np.maximum(last - first, 0)
        mine = np.repeat(np.arange(len(self)), counts)
        run_starts = np.cumsum(counts) - counts
        theirs = np.arange(mine.size) - np.repeat(run_starts, counts) + np.repeat(first, counts)
        return SpanSet(
            np.maximum(self.starts_ns[mine], other.starts_ns[theirs]),
            np.minimum(self.ends_ns[mine], other.ends_ns[theirs]),
        )

    def __sub__(self, other: SpanSet) -> SpanSet:
        if not self or not other:
            return self
        return self & other._complement(int(self.starts_ns[0]), int(self.ends_ns[-1]))

    def clip(self, start_ns: int, end_ns: int) -> SpanSet:
        """The part inside ``[start_ns, end_ns)``."""
        first = int(np.searchsorted(self.ends_ns, start_ns, side="right"))
        last = int(np.searchsorted(self.starts_ns, end_ns, side="left"))
        if first >= last or start_ns >= end_ns:
            return SpanSet.empty()
        return SpanSet(np.maximum(self.starts_ns[first:last], start_ns), np.minimum(self.ends_ns[first:last], end_ns))

    def gaps(self, start_ns: int, end_ns: int) -> SpanSet:
        """The part of ``[start_ns, end_ns)`` outside the set."""
        return self.clip(start_ns, end_ns)._complement(start_ns, end_ns)

    def lasting(self, least_ns: float) -> SpanSet:
        """Spans of at least this length."""
        chosen = self.ends_ns - self.starts_ns >= least_ns
        return SpanSet(self.starts_ns[chosen], self.ends_ns[chosen])

    def contains(self, instants_ns: Int64) -> Mask:
        """Whether each instant is in the set; same shape as ``instants_ns``."""
        if not self:
            return np.zeros(instants_ns.shape, dtype=np.bool_)
        index = np.searchsorted(self.starts_ns, instants_ns, side="right") - 1
        return (index >= 0) & (instants_ns < self.ends_ns[np.maximum(index, 0)])

    def measure_until(self, instants_ns: Int64) -> Int64:
        """Length of the part of the set before each instant; same shape as ``instants_ns``."""
        if not self:
            return np.zeros_like(instants_ns)
        done = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.ends_ns - self.starts_ns)))
        index = np.searchsorted(self.starts_ns, instants_ns, side="right")
        last = np.maximum(index - 1, 0)
        inside = np.clip(instants_ns - self.starts_ns[last], 0, self.ends_ns[last] - self.starts_ns[last])
        before: Int64 = done[last] + inside
        return before

    def _complement(self, start_ns: int, end_ns: int) -> SpanSet:
        """``[start_ns, end_ns)`` without the set's own spans."""
        starts = np.concatenate((np.array([start_ns], dtype=np.int64), self.ends_ns))
        ends = np.concatenate((self.starts_ns, np.array([end_ns], dtype=np.int64)))
        kept = ends > starts
        inside = SpanSet(starts[kept], ends[kept])
        return inside.clip(start_ns, end_ns)
