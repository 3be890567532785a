"""Recorded calls that launch device work or wait for it, their targets, and the recording's constants."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import name_mask, rows_named
from traceadvisor.analysis.operators.runtime_calls import blocking_rows, profiler_stop_rows
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask, common, either, grouped, without
from traceadvisor.model.events import NONE, EventTable, Kind
from traceadvisor.model.trace import Trace
from traceadvisor.replay.step_graph import Constants

_STREAM_WAIT = re.compile(r"StreamWaitEvent")
_WHOLE_DEVICE = re.compile(r"(?:Device|Ctx)Synchronize|^(?:cuda|hip)Free(?:Host)?$")
_FREE = re.compile(r"^(?:cuda|hip)Free(?:Host)?$")
"""Freeing memory waits for the device first. Source: CUDA driver API, "implicit synchronization"."""
_EVENT = re.compile(r"EventSynchronize")

_CLOCK_SLACK_NS = 5_000
"""Disagreement of host and device clocks: a wait may seem to end this much before its target."""


@dataclass(frozen=True, eq=False)
class Work:
    """Device work with a recorded launch, in order of launch; arrays of shape ``(m,)``."""

    row: Int64
    call_row: Int64
    start_ns: Int64
    end_ns: Int64
    call_start_ns: Int64
    call_end_ns: Int64
    stream: Int64
    """Number of the stream, from 0."""

    previous_end_ns: Int64
    """When the stream finished all earlier work, including work without a launch; -1 without any."""

    unlaunched_end_ns: Int64
    """End of work without a recorded launch, which was launched before the recording; shape ``(u,)``."""

    unlaunched_stream: Int64

    @property
    def stream_count(self) -> int:
        """Number of streams."""
        return max(int(self.stream.max(initial=0)), int(self.unlaunched_stream.max(initial=0))) + 1

    @cached_property
    def in_flight(self) -> Int64:
        """For each task, the launches in its stream's queue at its own launch; each call counts once."""
        is_last = np.append(self.call_row[1:] != self.call_row[:-1], True)[: self.row.size]
        result = np.zeros(self.row.size, dtype=np.int64)
        unlaunched_of = positions_by(self.unlaunched_stream)
        for number, mine in positions_by(self.stream).items():
            unlaunched = self.unlaunched_end_ns[unlaunched_of.get(number, mine[:0])]
            last = mine[is_last[mine]]
            done = np.sort(np.concatenate((self.end_ns[last], unlaunched)))
            called = self.call_start_ns[mine]
            given = unlaunched.size + np.searchsorted(self.call_start_ns[last], called)
            result[mine] = given - np.searchsorted(done, called, side="right")
        return result


@frozen(eq=False)
class Waits:
    """Calls that wait for device work; arrays of shape ``(k,)``, by start."""

    row: Int64
    target: Int64
    """Position in :class:`Work` of what the call waits for; NONE if unknown or nothing."""

    is_all: Mask
    """Whether the call waits for the whole device."""

    own_ns: Int64
    """The call's time after its target ended, or after its own start if later."""

    is_free: Mask
    """Whether the call then frees memory."""


def recorded_work(events: EventTable, launches: Launches) -> Work:
    """Return device work in order of launch."""
    _, stream = grouped(events.stream[launches.work_rows])
    start, end = events.start_ns[launches.work_rows], events.end_ns[launches.work_rows]
    previous = np.full(start.size, -1, dtype=np.int64)
    for mine in positions_by(stream).values():
        previous[mine[1:]] = np.maximum.accumulate(end[mine])[:-1]
    is_linked = launches.call_rows != NONE
    linked = np.flatnonzero(is_linked)
    calls = launches.call_rows[linked]
    order = np.argsort(calls, kind="stable")  # events are sorted by start, and so is the work of one call
    linked, calls = linked[order], calls[order]
    return Work(
        launches.work_rows[linked],
        calls,
        start[linked],
        end[linked],
        events.start_ns[calls],
        events.end_ns[calls],
        stream[linked].astype(np.int64),
        previous[linked],
        end[~is_linked],
        stream[~is_linked].astype(np.int64),
    )


def recorded_waits(trace: Trace, launches: Launches, work: Work) -> Waits:
    """Return calls that wait for the device without launching anything."""
    events = trace.events
    frees = rows_named(trace, Kind.RUNTIME, _FREE.match)
    rows = either(either(blocking_rows(trace, launches), profiler_stop_rows(trace)), frees)
    rows = without(rows, work.call_row)
    is_all = name_mask(trace.names, _WHOLE_DEVICE.search)[events.name_id[rows]]
    is_event = name_mask(trace.names, _EVENT.search)[events.name_id[rows]]
    target = _targets(events, work, rows, any_stream=is_all | is_event)
    ended = np.where(target == NONE, 0, work.end_ns[target]) if work.row.size else np.zeros_like(rows)
    own = np.maximum(events.end_ns[rows] - np.maximum(events.start_ns[rows], ended), 0)
    return Waits(rows, target, is_all, own, np.isin(rows, frees))


def stream_dependencies(trace: Trace, work: Work) -> Int64:
    """Return the task of another stream that each device task waits for; NONE if none is known.

    A recording does not show which stream a ``cudaStreamWaitEvent`` blocks, nor on which event. The next launch after
    such a call is assumed to wait for the last work that another stream received before the call and that had ended
    when the launched work began. Copies to the device are skipped: a loop that copies ahead requests the wait for its
    kernels, then launches the next copy, which need not wait.
    """
    events = trace.events
    result = np.full(work.row.size, NONE, dtype=np.int64)
    if work.stream_count < 2:
        return result
    calls = rows_named(trace, Kind.RUNTIME, _STREAM_WAIT.search)
    launched = np.searchsorted(work.call_start_ns, events.start_ns[calls])
    others = np.flatnonzero(events.kind[work.row] != Kind.COPY_H2D)
    following = np.searchsorted(others, launched)
    has_following = following < others.size
    before = dict(zip(others[following[has_following]].tolist(), launched[has_following].tolist(), strict=True))
    waiting, given = np.array(list(before), dtype=np.int64), np.array(list(before.values()), dtype=np.int64)
    done = LastDone.of(work.stream, work.end_ns)
    result[waiting] = done.of_other_streams(work.stream[waiting], given, work.start_ns[waiting])
    return result


def pageable_rows(trace: Trace, launches: Launches) -> Int64:
    """Return calls that launch work and wait for it: pageable and blocking copies."""
    calls = launches.call_rows[launches.call_rows != NONE]
    return common(blocking_rows(trace, launches), calls)


def _targets(events: EventTable, work: Work, rows: Int64, any_stream: Mask) -> Int64:
    """Return what calls wait for: the last work launched before each, on its thread's stream unless any may count.

    Work that ended after a call returned cannot be its target.
    """
    launched = np.searchsorted(work.call_start_ns, events.start_ns[rows])
    latest_ns = events.end_ns[rows] + _CLOCK_SLACK_NS
    stream = _stream_in_use(events, work, rows, launched)
    done = LastDone.of(work.stream, work.end_ns)
    own = done.of_stream(stream, launched, latest_ns)
    return np.where(any_stream, done.of_any_stream(launched, latest_ns), own)


def _stream_in_use(events: EventTable, work: Work, rows: Int64, launched: Int64) -> Int64:
    """Return the stream that each call's thread last launched to; NONE if it launched nothing before."""
    stream = np.full(rows.size, NONE, dtype=np.int64)
    launching = events.thread[work.call_row]
    by_thread = positions_by(launching)
    for thread, mine in positions_by(events.thread[rows]).items():
        theirs = by_thread.get(thread, launching[:0].astype(np.int64))
        position = np.searchsorted(theirs, launched[mine]) - 1
        stream[mine] = np.where(position < 0, NONE, np.append(work.stream[theirs], NONE)[position])
    return stream


QUEUE_DEPTH = 1022
"""Launches in flight on a stream at which a CUDA launch call blocks.

Every long launch call of a public V100 recording (torch, nanosecond time stamps) finds this many. Every stream has its
own queue: https://forums.developer.nvidia.com/t/68937. Recordings of HIP show no such limit.
"""

USUAL_LATENCY_NS, USUAL_GAP_NS, USUAL_CALL_NS, USUAL_WAIT_NS = 2_000, 1_000, 5_000, 7_000
"""Typical values in public recordings, for recordings without a case of their own."""

_QUEUED_NS = 20_000
"""A kernel was certainly queued if its launch call returned this long before the previous kernel ended."""

_LONGEST_LATENCY_NS = 100_000
"""Work that starts later than this after its launch waits for something; public recordings show up to 40 us."""


def measure(trace: Trace, work: Work, after: Int64, waits: Waits) -> Constants:
    """Return the recording's constants, as medians.

    ``after``: the work of another stream that each waits for; such work shows neither latency nor gap. ``waits``: the
    calls that wait for it.
    """
    is_kernel = trace.events.kind[work.row] == Kind.KERNEL
    latency_ns = work.start_ns - work.call_end_ns
    dry = (after == NONE) & (work.previous_end_ns < work.call_start_ns) & (latency_ns < _LONGEST_LATENCY_NS)
    queued = is_kernel & (after == NONE) & (work.previous_end_ns > work.call_end_ns + _QUEUED_NS)
    is_hip = name_mask(trace.names, lambda name: name.startswith("hip"))[trace.events.name_id[work.call_row]]
    is_free = work.in_flight < QUEUE_DEPTH
    return Constants(
        launch_latency_ns=_median(latency_ns[dry & is_kernel], _median(latency_ns[dry], USUAL_LATENCY_NS)),
        queued_gap_ns=_median((work.start_ns - work.previous_end_ns)[queued], USUAL_GAP_NS),
        launch_call_ns=_median((work.call_end_ns - work.call_start_ns)[is_kernel & is_free], USUAL_CALL_NS),
        wait_call_ns=_median(waits.own_ns[~waits.is_free], USUAL_WAIT_NS),
        queue_depth=None if is_hip.any() else QUEUE_DEPTH,
    )


def _median(values: Int64, usual_ns: int) -> int:
    return max(int(np.median(values)), 0) if values.size else usual_ns


_FAR = np.iinfo(np.int64).max


@frozen(eq=False)
class LastDone:
    """Device tasks by when they and all earlier ones of their stream had ended.

    Among tasks that are done at the same instant, the last one of the first stream comes last.
    """

    done_ns: Int64
    """When each task was done, ascending, shape ``(m,)``."""

    task: Int64
    """Position of the task in the order of launches, shape ``(m,)``."""

    stream: Int64
    """Its stream, shape ``(m,)``."""

    levels: tuple[tuple[Int64, Int64, Int64], ...]
    """For groups of 1, 2, 4, ... neighbours: the earliest task, its stream, and the earliest task of another stream."""

    @staticmethod
    def of(stream: Int64, end_ns: Int64) -> LastDone:
        """Take the stream and the end of each task, in the order of launches."""
        done_ns = np.empty_like(end_ns)
        for mine in positions_by(stream).values():
            done_ns[mine] = np.maximum.accumulate(end_ns[mine])
        order = np.lexsort((np.arange(stream.size), -stream, done_ns))
        levels = [(order, stream[order], np.full(order.size, _FAR))]
        while levels[-1][0].size > 1:
            levels.append(_paired(*levels[-1]))
        return LastDone(done_ns[order], order, stream[order], tuple(levels))

    def of_any_stream(self, launched: Int64, instants_ns: Int64) -> Int64:
        """Return the last task that was launched as one of the first ``launched`` and done by an instant."""
        return self._last(instants_ns, lambda level, at: self.levels[level][0][at] < launched)

    def of_other_streams(self, stream: Int64, launched: Int64, instants_ns: Int64) -> Int64:
        """Return the same among the streams other than a given one; NONE if there is none."""

        def holds(level: int, at: Int64) -> Mask:
            first, its_stream, first_of_others = (column[at] for column in self.levels[level])
            return np.where(its_stream == stream, first_of_others, first) < launched

        return self._last(instants_ns, holds)

    def of_stream(self, stream: Int64, launched: Int64, instants_ns: Int64) -> Int64:
        """Return the same on a given stream; NONE if there is none."""
        result = np.full(stream.size, NONE, dtype=np.int64)
        by_stream = positions_by(self.stream)
        for number, asked in positions_by(stream).items():
            places = by_stream.get(number)
            if places is not None:  # in the order of launches, as each is done after those before it
                done = np.searchsorted(self.done_ns[places], instants_ns[asked], side="right")
                found = np.minimum(done, np.searchsorted(self.task[places], launched[asked])) - 1
                result[asked] = np.append(self.task[places], NONE)[np.where(found < 0, places.size, found)]
        return result

    def _last(self, instants_ns: Int64, holds: Callable[[int, Int64], Mask]) -> Int64:
        """Return the last task done by each instant that a condition holds for.

        The groups to the left of the instant are tried from small to large, then the first that holds is searched.
        """
        if not self.task.size:
            return np.full(instants_ns.size, NONE, dtype=np.int64)
        end = np.searchsorted(self.done_ns, instants_ns, side="right")
        found_level = np.full(end.size, NONE)
        group = np.zeros_like(end)
        for level in range(len(self.levels)):
            open_ = (found_level == NONE) & (end & (1 << level) > 0)
            candidate = np.where(open_, (end >> level) - 1, 0)
            hit = open_ & holds(level, candidate)
            found_level[hit], group[hit] = level, candidate[hit]
            end = np.where(open_, end & ~(1 << level), end)
        for level in range(len(self.levels) - 1, 0, -1):
            here = found_level == level
            right = np.minimum(2 * group + 1, self.levels[level - 1][0].size - 1)
            is_right = (right == 2 * group + 1) & holds(level - 1, np.where(here, right, 0))
            group = np.where(here, np.where(is_right, right, 2 * group), group)
            found_level = np.where(here, level - 1, found_level)
        return np.where(found_level == NONE, NONE, self.task[np.where(found_level == NONE, 0, group)])


def _paired(first: Int64, stream: Int64, other: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the figures of groups of twice the size; the last one may be smaller."""
    if first.size % 2:
        first, stream, other = (np.append(part, [_FAR]) for part in (first, stream, other))
    left, right = (tuple(part[side::2] for part in (first, stream, other)) for side in (0, 1))
    is_left = left[0] <= right[0]
    best, loser = (np.where(is_left, left[0], right[0]), np.where(is_left, right[0], left[0]))
    best_stream, loser_stream = np.where(is_left, left[1], right[1]), np.where(is_left, right[1], left[1])
    best_other = np.where(is_left, left[2], right[2])
    loser_other = np.where(is_left, right[2], left[2])
    others = np.where(best_stream == loser_stream, np.minimum(best_other, loser_other), np.minimum(best_other, loser))
    return best, best_stream, others
