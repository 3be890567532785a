"""Unknown time: no device work was recorded, and the recording does not show whether there was any.

Each reason is a bounded doubt about instants without recorded work on one device. A long queue, a device that another
stream keeps busy, and a launch call that takes long itself (a module is loaded, for example) are no such doubt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from traceadvisor.analysis.idle.gaps import Gaps
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.launches import Launches, link_launches
from traceadvisor.analysis.operators.lost_launches import capture_spans, expected_launches
from traceadvisor.analysis.operators.runtime_calls import graph_launch_rows, profiler_stop_rows, synchronise_rows
from traceadvisor.analysis.steps.detection import recording_extent
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int32, Int64, Mask, one_of, without
from traceadvisor.model.events import DEVICE_WORK, NONE, EventTable, Kind
from traceadvisor.model.spans import SpanSet

LEAST_WAIT_NS = 1_000_000
"""A shorter wait for the start of an operation is never unknown: drivers and busy hosts delay a start for a while."""

TIMES_MEDIAN = 20
"""A wait this many times longer than the recording's median launch latency is more than latency."""

FEWEST_LATENCIES = 3
"""Fewer latencies have no meaningful median; then only `LEAST_WAIT_NS` counts."""

MOST_LIKE_GRAPHS = 16
"""Graphs to compare an odd launch with, those launched most often. The layers of a model share a few graphs."""


class UnknownReason(Enum):
    """Why the recording does not show whether the device worked, in order of precedence."""

    UNREAD = "unread"
    """Work of the device was recorded in a way that is not understood."""

    CAPTURE = "capture"
    """A CUDA graph is captured: kernels are recorded into the graph and not run."""

    LOST = "lost"
    """A launch has no device record. Its kernel ran after all earlier work and before all later work."""

    GRAPH = "graph"
    """A graph launch has fewer device records than other launches of the graph."""

    EARLIER = "earlier"
    """The first copy on a stream, or a synchronisation before all recorded work, waits for work without records."""

    LATENCY = "latency"
    """An operation starts long after its launch although no recorded work delays it."""


@dataclass(frozen=True, eq=False)
class Unknown:
    """Time in which the recording does not show whether the device worked."""

    by_reason: Mapping[UnknownReason, SpanSet]
    """Disjoint sets."""

    @cached_property
    def spans(self) -> SpanSet:
        """All of it."""
        return SpanSet.union_all(self.by_reason.values())


def find_unknown(observation: Observation, gaps: Gaps) -> Unknown:
    """Return the unknown time of a device by the first reason that holds; empty without device work."""
    if observation.is_unread:
        whole = SpanSet.of(recording_extent(observation.trace))
        return Unknown({UnknownReason.UNREAD: whole - observation.trace.events.spans(observation.launches.work_rows)})
    if not observation.has_device:
        return Unknown({})
    queue, longest_ns = _Queue.of(observation), _longest_latency_ns(observation, gaps)
    elsewhere = _Elsewhere.of(observation)
    candidates = {
        UnknownReason.UNREAD: observation.unread,
        UnknownReason.CAPTURE: capture_spans(observation.trace),
        UnknownReason.LOST: _after_lost_launches(observation, queue),
        UnknownReason.GRAPH: _inside_short_graphs(observation, queue),
        UnknownReason.EARLIER: _waits_for_earlier_work(observation, gaps, elsewhere, longest_ns),
        UnknownReason.LATENCY: _long_latencies(observation, gaps, elsewhere, longest_ns),
    }
    rest = gaps.spans(np.ones_like(gaps.queued))
    found: dict[UnknownReason, SpanSet] = {}
    for reason, spans in candidates.items():
        found[reason] = rest & spans
        rest -= spans
    return Unknown(found)


@frozen(eq=False)
class _Queue:
    """Device work with a recorded launch, in order of launch; arrays of shape ``(n,)``."""

    call_start_ns: Int64
    done_ns: Int64
    """End of this work and of all that was launched before."""

    begun_ns: Int64
    """First start of this work and of all that was launched after."""

    extent: tuple[int, int]

    @staticmethod
    def of(observation: Observation) -> _Queue:
        """Return the queue of the observed device."""
        events, launches = observation.trace.events, observation.launches
        linked = launches.call_rows != NONE
        rows, calls = launches.work_rows[linked], launches.call_rows[linked]
        order = np.argsort(events.start_ns[calls], kind="stable")
        return _Queue(
            events.start_ns[calls][order],
            np.maximum.accumulate(events.end_ns[rows][order]),
            np.minimum.accumulate(events.start_ns[rows][order][::-1])[::-1],
            recording_extent(observation.trace),
        )

    def done_before(self, call_start_ns: Int64) -> Int64:
        """Return when all work launched before some calls had ended; the recording's start without any."""
        known = np.append(self.extent[0], self.done_ns)
        return known[np.searchsorted(self.call_start_ns, call_start_ns, side="left")]

    def begun_after(self, call_start_ns: Int64) -> Int64:
        """Return the first start of work launched after some calls; the recording's end without any."""
        known = np.append(self.begun_ns, self.extent[1])
        return known[np.searchsorted(self.call_start_ns, call_start_ns, side="right")]


@frozen(eq=False)
class _Elsewhere:
    """Work of the other devices in the recording, by start; arrays of shape ``(n,)``."""

    start_ns: Int64
    done_ns: Int64
    """End of this work and of all that started before."""

    @staticmethod
    def of(observation: Observation) -> _Elsewhere:
        """Return the work that the observed device does not do."""
        events = observation.trace.events
        rows = without(events.rows(*DEVICE_WORK), observation.launches.work_rows)
        return _Elsewhere(events.start_ns[rows], np.maximum.accumulate(events.end_ns[rows]))

    def busy_until(self, instants_ns: Int64) -> Int64:
        """Return the last end of work that started before some instants; -1 without any."""
        return np.append(-1, self.done_ns)[np.searchsorted(self.start_ns, instants_ns, side="left")]


def _after_lost_launches(observation: Observation, queue: _Queue) -> SpanSet:
    """Return the time in which kernels of lost launches may have run.

    A kernel runs after its launch. On its stream it runs after all earlier work and before all later work. A
    synchronisation of the device that begins after the launch returns after the kernel.
    """
    events = observation.trace.events
    rows = _lost_launches_of(observation)
    if not rows.size:
        return SpanSet.empty()
    starts, ends = events.start_ns[rows], events.end_ns[rows]
    until = queue.begun_after(starts)
    if len(observation.trace.device_indices) == 1:
        syncs = synchronise_rows(observation.trace, device_only=True)
        returned = np.minimum.accumulate(events.end_ns[syncs][::-1])[::-1]
        known = np.append(returned, queue.extent[1])
        until = np.minimum(until, known[np.searchsorted(events.start_ns[syncs], ends, side="left")])
    return SpanSet.union_of(np.maximum(ends, queue.done_before(starts)), until)


def _lost_launches_of(observation: Observation) -> Int64:
    """Return the rows of lost launches of the observed device; none if no launch in the recording has a record.

    With several devices, a launch is for the device of its thread's last launch that has a record, else of the next.
    """
    trace, events = observation.trace, observation.trace.events
    lost = expected_launches(trace).lost_rows
    if not lost.size:
        return lost
    launches = link_launches(events)
    linked = launches.call_rows != NONE
    if not linked.any():
        return lost[:0]
    devices = events.device[launches.work_rows[linked]]
    own = observation.launches.work_rows[:1]
    if (devices == devices[0]).all():
        return lost if devices[0] == events.device[own[0]] else lost[:0]
    rows = np.concatenate((launches.call_rows[linked], lost))
    device = np.concatenate((devices, np.full(lost.size, NONE)))
    order = np.lexsort((events.start_ns[rows], events.thread[rows]))
    threads, known = events.thread[rows][order], device[order]
    places = np.where(known != NONE, np.arange(known.size), -1)
    before = np.maximum.accumulate(places)
    after = np.minimum.accumulate(np.where(places >= 0, places, known.size)[::-1])[::-1]
    of_same_thread = (before >= 0) & (threads[before] == threads)
    chosen = np.where(of_same_thread, before, np.minimum(after, known.size - 1))
    found = np.where(threads[chosen] == threads, known[chosen], NONE)
    mine = (known == NONE) & (found == events.device[own[0]])
    return np.sort(rows[order[mine]])


def _inside_short_graphs(observation: Observation, queue: _Queue) -> SpanSet:
    """Return the time in which missing operations of graph launches may have run.

    A launch is short if no other has the same operations and at least two others have these and more. It may have taken
    as long as the longest of those.
    """
    events = observation.trace.events
    launches = list(_graph_launches(observation.launches, graph_launch_rows(observation.trace), events))
    counts = Counter(launch.names for launch in launches)
    often = [names for names, count in counts.most_common(MOST_LIKE_GRAPHS) if count > 1]
    likes = [_Operations.of(names) for names in sorted(often, key=len)]
    longest_ns: dict[bytes, int] = defaultdict(int)
    for launch in launches:
        longest_ns[launch.names] = max(longest_ns[launch.names], launch.end_ns - launch.start_ns)
    found: list[tuple[int, int, int]] = []
    for launch in launches:
        if counts[launch.names] > 1:
            continue
        own = _Operations.of(launch.names)
        if like := next((one for one in likes if one.contains(own)), None):
            most_ns = longest_ns[like.names]
            found.append((launch.call_row, launch.end_ns - most_ns, launch.start_ns + most_ns))
    calls, earliest_ns, latest_ns = np.array(found, dtype=np.int64).reshape(-1, 3).T
    call_starts = events.start_ns[calls]
    free_ns = np.maximum(events.end_ns[calls], queue.done_before(call_starts))
    return SpanSet.union_of(np.maximum(earliest_ns, free_ns), np.minimum(latest_ns, queue.begun_after(call_starts)))


@frozen
class _GraphLaunch:
    """One launch of a graph and its recorded operations."""

    call_row: int
    names: bytes
    """Their sorted name ids, 32 bits each."""

    start_ns: int
    end_ns: int


def _graph_launches(launches: Launches, graph_rows: Int64, events: EventTable) -> Iterator[_GraphLaunch]:
    """Yield the graph launches with recorded operations, by the row of the call."""
    inside = np.isin(launches.call_rows, graph_rows)
    rows, calls = launches.work_rows[inside], launches.call_rows[inside]
    if not rows.size:
        return
    order = np.lexsort((events.name_id[rows], calls))
    rows, calls = rows[order], calls[order]
    opens = np.flatnonzero(np.append(True, calls[1:] != calls[:-1]))
    starts = np.minimum.reduceat(events.start_ns[rows], opens).tolist()
    ends = np.maximum.reduceat(events.end_ns[rows], opens).tolist()
    names = np.split(events.name_id[rows], opens[1:])
    for call, ids, start_ns, end_ns in zip(calls[opens].tolist(), names, starts, ends, strict=True):
        yield _GraphLaunch(call, ids.tobytes(), start_ns, end_ns)


@frozen(eq=False)
class _Operations:
    """The operations of a graph launch, in any order."""

    names: bytes
    name_ids: Int32
    """Distinct, ascending; shape ``(n,)``."""

    counts: Int64

    @staticmethod
    def of(names: bytes) -> _Operations:
        """Return the operations with these sorted name ids."""
        return _Operations(names, *np.unique(np.frombuffer(names, dtype=np.int32), return_counts=True))

    def contains(self, other: _Operations) -> bool:
        """Whether these are all of the other operations, and more."""
        if len(other.names) >= len(self.names):
            return False
        at = np.minimum(np.searchsorted(self.name_ids, other.name_ids), self.name_ids.size - 1)
        return bool(((self.name_ids[at] == other.name_ids) & (other.counts <= self.counts[at])).all())


def _longest_latency_ns(observation: Observation, gaps: Gaps) -> float:
    """Return the longest wait for the start of an operation that counts as launch latency.

    Latencies are measured where an operation was launched to an idle device, from the start of the call.
    """
    launched_idle = gaps.has_call & (gaps.call_start_ns >= gaps.start_ns) & ~_is_first_on_stream(observation, gaps)
    latencies = (gaps.end_ns - gaps.call_start_ns)[launched_idle]
    if latencies.size < FEWEST_LATENCIES:
        return LEAST_WAIT_NS
    return max(TIMES_MEDIAN * float(np.median(latencies)), LEAST_WAIT_NS)


def _is_first_on_stream(observation: Observation, gaps: Gaps) -> Mask:
    rows = observation.launches.work_rows
    is_first = np.zeros(rows.size + 1, dtype=np.bool_)
    is_first[np.unique(observation.trace.events.stream[rows], return_index=True)[1]] = True
    return is_first[gaps.place]


def _waits_for_earlier_work(observation: Observation, gaps: Gaps, elsewhere: _Elsewhere, longest_ns: float) -> SpanSet:
    """Return the time in which the host waits for work that was launched before the recording and has no record.

    The first copy on a stream waits inside its call. A synchronisation waits before all recorded work of the device.
    """
    trace, events = observation.trace, observation.trace.events
    kinds = np.append(events.kind[observation.launches.work_rows], np.int8(Kind.OTHER))[gaps.place]
    waits = one_of(kinds, Kind.COPY_H2D, Kind.COPY_D2H, Kind.COPY_OTHER) & _is_first_on_stream(observation, gaps)
    waits &= gaps.has_call & (gaps.call_end_ns >= gaps.end_ns)
    since = np.maximum(np.maximum(gaps.start_ns, gaps.call_start_ns), elsewhere.busy_until(gaps.end_ns))
    long = waits & (gaps.end_ns - since > longest_ns)
    copies = SpanSet.union_of(since[long], gaps.end_ns[long])
    if not gaps.place.size or gaps.place[0] > 0:
        return copies
    syncs = without(synchronise_rows(trace), profiler_stop_rows(trace))
    until = np.minimum(events.end_ns[syncs], gaps.end_ns[0])
    since = np.maximum(np.maximum(events.start_ns[syncs], gaps.start_ns[0]), elsewhere.busy_until(until))
    long = until - since > longest_ns
    return copies | SpanSet.union_of(since[long], until[long])


def _long_latencies(observation: Observation, gaps: Gaps, elsewhere: _Elsewhere, longest_ns: float) -> SpanSet:
    """Return the time from the return of launch calls to a start that no recorded work delays, where that is long.

    Another thread may complete a launch later: it takes the operator out of a queue, in a call with the same id.
    """
    returned = gaps.has_call & (gaps.call_end_ns < gaps.end_ns)
    since = np.maximum(np.maximum(gaps.start_ns, gaps.call_end_ns), elsewhere.busy_until(gaps.end_ns))
    long = np.flatnonzero(returned & (gaps.end_ns - since > longest_ns))
    events, calls = observation.trace.events, observation.trace.events.rows(Kind.RUNTIME)
    ids = events.correlation[observation.launches.call_rows[gaps.place[long]]]
    completed_ns: dict[int, int] = {}
    for row in calls[np.isin(events.correlation[calls], ids)].tolist():
        id_ = int(events.correlation[row])
        completed_ns[id_] = max(completed_ns.get(id_, 0), int(events.end_ns[row]))
    begin = np.maximum(since[long], [completed_ns[id_] for id_ in ids.tolist()]) if long.size else since[long]
    still = gaps.end_ns[long] - begin > longest_ns
    return SpanSet.union_of(begin[still], gaps.end_ns[long][still])
