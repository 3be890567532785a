"""Gaps: spans in which a device runs nothing, each with the launch call of the operation that ends it."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int32, Int64, Mask, distinct
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet


@frozen(eq=False)
class Gaps:
    """Gaps in which the device runs nothing, split where a zero-length operation starts; shape ``(n,)``."""

    start_ns: Int64
    """When the device ran out of work."""

    end_ns: Int64
    place: Int64
    """Position in ``Launches.work_rows`` of the operation that starts at or after the end; their number without one."""

    call_start_ns: Int64
    """When the launch call of that operation began; the gap's end without such a call."""

    call_end_ns: Int64
    """When that call returned; the gap's end without such a call."""

    thread: Int32
    """The thread that launched the next operation, or else the training thread."""

    has_call: Mask
    """Whether the launch call of the next operation was recorded."""

    queued: Mask
    """Whether the next operation was launched before the gap."""

    late: Mask
    """Whether the launch call returned within the gap; the rest of the gap is launch latency."""

    after_block: Mask
    """Whether the host was blocked on the device when the gap began."""

    def spans(self, chosen: Mask) -> SpanSet:
        """Return the union of some gaps."""
        return SpanSet.union_of(self.start_ns[chosen], self.end_ns[chosen])


def find_gaps(observation: Observation, extent: tuple[int, int]) -> Gaps:
    """Return the device's gaps within an extent, each with the launch call of the operation that ends it.

    Without device work there are none: whether there is a device is unknown then.
    """
    if not observation.has_device:
        none, never = np.empty(0, np.int64), np.empty(0, np.bool_)
        return Gaps(none, none, none, none, none, none.astype(np.int32), never, never, never, never)
    events, launches = observation.trace.events, observation.launches
    starts, ends = events.start_ns[launches.work_rows], events.end_ns[launches.work_rows]
    idle = SpanSet.union_of(starts, ends).gaps(*extent)
    cuts = distinct(starts[idle.contains(starts)])
    inner = cuts[cuts > idle.starts_ns[np.searchsorted(idle.starts_ns, cuts, side="right") - 1]]
    gap_starts = np.sort(np.concatenate((idle.starts_ns, inner)))
    gap_ends = np.sort(np.concatenate((idle.ends_ns, inner)))
    place = np.searchsorted(starts, gap_ends)
    calls = np.append(launches.call_rows, NONE)[np.minimum(place, starts.size)]
    has_call = calls != NONE
    call_ends = np.where(has_call, events.end_ns[calls], gap_ends)
    queued = has_call & (call_ends <= gap_starts)
    return Gaps(
        gap_starts,
        gap_ends,
        place,
        np.where(has_call, events.start_ns[calls], gap_ends),
        call_ends,
        np.where(has_call, events.thread[calls], observation.thread).astype(np.int32),
        has_call=has_call,
        queued=queued,
        late=has_call & ~queued & (call_ends < gap_ends),
        after_block=observation.blocked.contains(gap_starts),
    )
