"""Copies to the GPU by the memory they start from: whether a recording identifies them, and how fast they are."""

from __future__ import annotations

from typing import Self

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import name_mask, rows_named
from traceadvisor.analysis.operators.runtime_calls import blocking_rows
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, among, common
from traceadvisor.model.events import NONE, EventTable, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

LARGE_BYTES = 1 << 20
"""From this size on, the time to start a copy, about 10 us, is small compared with the copy itself."""

MEMORY_UNKNOWN = "The recording does not show whether copies start from pageable or pinned memory."


def are_told_apart(trace: Trace) -> bool:
    """Whether the names of copies show pageable or pinned memory, as with CUDA; true without copies."""
    named = rows_named(trace, Kind.COPY_H2D, lambda name: "Pageable" in name or "Pinned" in name)
    return bool(named.size) or not trace.events.rows(Kind.COPY_H2D).size


def pageable_copies(trace: Trace, launches: Launches) -> Int64:
    """Rows of the copies of a device from pageable memory."""
    return common(rows_named(trace, Kind.COPY_H2D, lambda name: "Pageable" in name), launches.work_rows)


@frozen(eq=False)
class CopyRate:
    """The rate of some copies. Copies of unknown size count as empty."""

    rows: Int64
    moved_bytes: int
    bytes_per_s: float

    @classmethod
    def of(cls, events: EventTable, rows: Int64) -> Self:
        """Divide their bytes by their time."""
        moved_bytes, total_ns = int(np.maximum(events.byte_count[rows], 0).sum()), int(events.duration_ns[rows].sum())
        return cls(rows, moved_bytes, moved_bytes / max(total_ns, 1) * 1e9)


def pinned_copy_rate(trace: Trace, launches: Launches, windows: SpanSet) -> CopyRate | None:
    """Return the rate of large copies inside some windows; None without one that is known to be pinned."""
    events = trace.events
    pinned = name_mask(trace.names, lambda name: "Pinned" in name)
    rows = launches.work_rows[events.kind[launches.work_rows] == Kind.COPY_H2D]
    rows = rows[pinned[events.name_id[rows]] & (events.byte_count[rows] >= LARGE_BYTES)]
    rows = rows[windows.contains(events.start_ns[rows]) & (events.duration_ns[rows] > 0)]
    return CopyRate.of(events, rows) if rows.size else None


@frozen(eq=False)
class _BlockingUploads:
    """Blocking copies and their waits, as rows of the event table."""

    copies: Int64
    waits: Int64
    drained: SpanSet
    """Idle time of the GPU while the CPU launches kernels again after these waits."""

    starting: SpanSet
    """From each copy's call to the copy: it takes that time without a wait, too."""


def blocking_uploads(
    observation: Observation, tree: OperatorTree, windows: SpanSet, drained: SpanSet, *, memory: str = "Pinned"
) -> _BlockingUploads:
    """Find copies from pinned memory, or from ``"Pageable"`` memory, that wait for the GPU or whose operator does.

    ``windows``: only copies that start in these windows count. ``drained``: idle time after waits (the category
    ``idle_sync``).
    """
    trace, launches = observation.trace, observation.launches
    events = trace.events
    mine = name_mask(trace.names, lambda name: memory in name)[events.name_id[launches.work_rows]]
    mine &= (events.kind[launches.work_rows] == Kind.COPY_H2D) & (launches.call_rows != NONE)
    mine &= windows.contains(events.start_ns[launches.work_rows])
    copies, calls = launches.work_rows[mine], launches.call_rows[mine]
    blocking = blocking_rows(trace, launches)
    copying = tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    waiting = tree.enclosing(events.thread[blocking].astype(np.int64), events.start_ns[blocking])
    waits = among(waiting, copying[copying != NONE]) | among(blocking, calls)
    after = np.searchsorted(events.start_ns[blocking], drained.starts_ns, side="right") - 1
    follows = np.append(waits, False)[after]  # a value, not a flag
    return _BlockingUploads(
        copies[among(copying, waiting[waits & (waiting != NONE)]) | among(calls, blocking[waits])],
        blocking[waits],
        SpanSet(drained.starts_ns[follows], drained.ends_ns[follows]),
        SpanSet.union_of(events.start_ns[calls], events.start_ns[copies]),
    )
