"""Causes of device idle time, instant by instant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.steps.marks import recording_extent
from traceadvisor.model.arrays import Int32, Int64, Mask, distinct, numbers_in
from traceadvisor.model.breakdown import IDLE_CATEGORIES, Category
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Gaps in which the device runs nothing, split where a zero-length operation starts; shape ``(n,)``."""

    start_ns: Int64
    """When the device ran out of work."""

    end_ns: Int64
    call_end_ns: Int64
    """When the launch call of the next operation returned; the gap's end without such a call."""

    thread: Int32
    """The thread that launched the next operation, or else the training thread."""

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
    """Return the device's gaps within an extent, each with the launch call of the operation that ends it."""
    events, launches = observation.trace.events, observation.launches
    starts, ends = events.start_ns[launches.work_rows], events.end_ns[launches.work_rows]
    idle = SpanSet.union_of(starts, ends).gaps(*extent)
    cuts = distinct(starts[idle.contains(starts)])
    inner = cuts[cuts > idle.starts_ns[np.searchsorted(idle.starts_ns, cuts, side="right") - 1]]
    gap_starts = np.sort(np.concatenate((idle.starts_ns, inner)))
    gap_ends = np.sort(np.concatenate((idle.ends_ns, inner)))
    following = np.searchsorted(starts, gap_ends)
    calls = np.append(launches.call_rows, NONE)[np.minimum(following, starts.size)]
    has_call = calls != NONE
    call_ends = np.where(has_call, events.end_ns[calls], gap_ends)
    queued = has_call & (call_ends <= gap_starts)
    return Gaps(
        gap_starts,
        gap_ends,
        call_ends,
        np.where(has_call, events.thread[calls], observation.thread).astype(np.int32),
        queued=queued,
        late=has_call & ~queued & (call_ends < gap_ends),
        after_block=observation.blocked.contains(gap_starts),
    )


def idle_partition(observation: Observation, extent: tuple[int, int]) -> dict[Category, SpanSet]:
    """Split the gaps within an extent into data wait and the idle categories, which are disjoint."""
    gaps = find_gaps(observation, extent)
    parts: dict[Category, list[SpanSet]] = {category: [] for category in IDLE_CATEGORIES}
    parts[Category.IDLE_DEVICE].append(gaps.spans(gaps.queued))
    for thread in numbers_in(gaps.thread[~gaps.queued]):
        mine = ~gaps.queued & (gaps.thread == thread)
        for found in (_host_causes(gaps, mine, observation, thread), _latency(gaps, mine, observation, thread)):
            for category, spans in found.items():
                parts[category].append(spans)
    result = {category: SpanSet.union_all(sets) - observation.loading for category, sets in parts.items()}
    result[Category.DATA_WAIT] = SpanSet.union_of(gaps.start_ns, gaps.end_ns) - SpanSet.union_all(result.values())
    return result


def _host_causes(gaps: Gaps, mine: Mask, observation: Observation, thread: int) -> dict[Category, SpanSet]:
    """Split the time before the launch call returned by what the host does."""
    ends = np.where(gaps.late, gaps.call_end_ns, gaps.end_ns)
    rest = SpanSet.union_of(gaps.start_ns[mine], ends[mine]) - observation.loading
    profiler = rest & observation.profiler
    rest -= profiler
    allocator = rest & observation.allocating(thread)
    rest -= allocator
    active = rest & observation.active(thread)
    after_block = gaps.spans(mine & gaps.after_block)
    return {
        Category.IDLE_PROFILER: profiler,
        Category.IDLE_ALLOCATOR: allocator,
        Category.IDLE_SYNC: active & after_block,
        Category.IDLE_LAUNCH: active - after_block,
        Category.IDLE_HOST: rest - active,
    }


def _latency(gaps: Gaps, mine: Mask, observation: Observation, thread: int) -> dict[Category, SpanSet]:
    """Assign the time from the launch call's return to the operation's start to the call's last category."""
    last = gaps.call_end_ns - 1
    active = observation.active(thread).contains(last)
    rest = mine & gaps.late & ~observation.loading.contains(last)
    result: dict[Category, SpanSet] = {}
    for category, holds in (
        (Category.IDLE_PROFILER, observation.profiler.contains(last)),
        (Category.IDLE_ALLOCATOR, observation.allocating(thread).contains(last)),
        (Category.IDLE_SYNC, active & gaps.after_block),
        (Category.IDLE_LAUNCH, active),
        (Category.IDLE_HOST, np.ones_like(active)),
    ):
        chosen = rest & holds
        result[category] = SpanSet.union_of(gaps.call_end_ns[chosen], gaps.end_ns[chosen])
        rest &= ~holds
    return result


def plain_python(observation: Observation, least_ns: float) -> SpanSet:
    """Return spans of at least ``least_ns`` in which the training threads run only plain Python, outside the loader.

    Training threads are the training thread and those that launch work: while one waits for another, none counts as
    idle. Collectives do not count either: waiting for other ranks is not this process's own work.
    """
    events, calls = observation.trace.events, observation.launches.call_rows
    threads = {observation.thread, *np.unique(events.thread[calls[calls != NONE]]).tolist()}
    busy = SpanSet.union_all(observation.active(thread) for thread in threads) | observation.loading
    busy |= events.spans(host_collective_rows(observation.trace))
    return busy.gaps(*recording_extent(observation.trace)).lasting(least_ns)
