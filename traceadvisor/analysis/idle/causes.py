"""Causes of device idle time, instant by instant."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.idle.gaps import Gaps
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.steps.marks import recording_extent
from traceadvisor.model.arrays import Mask, numbers_in
from traceadvisor.model.breakdown import IDLE_CATEGORIES, Category
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet


def idle_partition(observation: Observation, gaps: Gaps, unknown: SpanSet) -> dict[Category, SpanSet]:
    """Split the gaps of a device into unknown time, data wait and the idle categories, which are disjoint.

    Args:
        observation: the recording on one device.
        gaps: the gaps of the device.
        unknown: instants without recorded GPU work at which the GPU may have worked. They come before every cause.
    """
    parts: dict[Category, list[SpanSet]] = {category: [] for category in IDLE_CATEGORIES}
    parts[Category.IDLE_DEVICE].append(gaps.spans(gaps.queued))
    for thread in numbers_in(gaps.thread[~gaps.queued]):
        mine = ~gaps.queued & (gaps.thread == thread)
        for found in (_host_causes(gaps, mine, observation, thread), _latency(gaps, mine, observation, thread)):
            for category, spans in found.items():
                parts[category].append(spans)
    result = {category: SpanSet.union_all(sets) - observation.loading for category, sets in parts.items()}
    idle = SpanSet.union_of(gaps.start_ns, gaps.end_ns)
    result[Category.DATA_WAIT] = idle - SpanSet.union_all(result.values())
    return {Category.IDLE_UNKNOWN: unknown & idle} | {cause: spans - unknown for cause, spans in result.items()}


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
