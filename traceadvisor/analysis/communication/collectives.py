"""Collectives of a rank: their rows, kinds, purposes, messages and times."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from traceadvisor.analysis.communication.purposes import purposes_of
from traceadvisor.analysis.communication.surroundings import surroundings
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.analysis.steps.detection import position_at
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask, without
from traceadvisor.model.breakdown import Category
from traceadvisor.model.communication import CollectiveKind, CommunicationRow, Message, Purpose
from traceadvisor.model.events import EXCHANGE, HOST_COLLECTIVES, NONE, EventTable, Kind
from traceadvisor.model.once import once
from traceadvisor.model.ranks import CollectiveCalls
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step, StepTable
from traceadvisor.model.trace import Trace

_OPERATORS = "c10d::"
"""Prefix of the operators that start collectives."""

_DEFAULT_GROUPS = ("", "default_pg")
"""Descriptions of a group of all ranks, or of none that was recorded."""


@once
def host_collective_rows(trace: Trace) -> Int64:
    """Return the rows of host-side collectives: they enqueue device work, or do the work themselves (Gloo)."""
    return rows_named(trace, Kind.ANNOTATION, lambda name: name.lower().startswith(HOST_COLLECTIVES))


@frozen(eq=False)
class Collectives:
    """Some collectives of one rank, by start; all of length ``n``."""

    rows: Int64
    """Rows of the event table: kernels, or ranges on the host if there is no device activity."""

    call_rows: Int64
    """The event that launched each; NONE if unknown."""

    kinds: tuple[CollectiveKind, ...]
    purposes: tuple[Purpose, ...]
    messages: tuple[Message | None, ...]
    """Recorded arguments; None without any."""

    sending_ns: Int64
    """Time in which each is not known to wait for other ranks: the longest that its transfer can take."""

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self, chosen: Mask) -> Collectives:
        """Return some of them."""
        keep = chosen.tolist()
        return Collectives(
            self.rows[chosen],
            self.call_rows[chosen],
            tuple(compress(self.kinds, keep)),
            tuple(compress(self.purposes, keep)),
            tuple(compress(self.messages, keep)),
            self.sending_ns[chosen],
        )

    def of(
        self, purposes: Collection[Purpose], kinds: Collection[CollectiveKind] = tuple(CollectiveKind)
    ) -> Collectives:
        """Return those of some purposes and kinds."""
        pairs = zip(self.purposes, self.kinds, strict=True)
        chosen = (purpose in purposes and kind in kinds for purpose, kind in pairs)
        return self.take(np.fromiter(chosen, np.bool_, len(self)))

    @property
    def sent_bytes(self) -> Int64:
        """Bytes that this rank sends in each; NONE if unknown."""
        return self._bytes(message.sent_bytes if message else None for message in self.messages)

    @property
    def size_bytes(self) -> Int64:
        """Size of each as nccl-tests counts it; NONE if unknown."""
        return self._bytes(message.size_bytes if message else None for message in self.messages)

    def _bytes(self, sizes: Iterable[int | None]) -> Int64:
        return np.fromiter((NONE if size is None else size for size in sizes), np.int64, len(self))

    @property
    def bus_bytes_per_s(self) -> Float64:
        """Bus bandwidth of each; NaN if unknown. Waiting for late ranks counts as far as it is unknown."""
        sizes = (message.group_size if message else None for message in self.messages)
        factors = np.array([bus_factor(kind, size) or np.nan for kind, size in zip(self.kinds, sizes, strict=True)])
        rates: Float64 = _rates(self.size_bytes, self.sending_ns) * factors.reshape(len(self))
        return rates


def _rates(size_bytes: Int64, duration_ns: Int64) -> Float64:
    known = (size_bytes != NONE) & (duration_ns > 0)
    return np.where(known, size_bytes * 1e9 / np.maximum(duration_ns, 1), np.nan)


def collectives(observation: Observation, tree: OperatorTree, waits: SpanSet) -> Collectives:
    """Return all collectives of a recording: on the device, or on the host if there is no device activity.

    ``waits``: time in which they are known to wait for other ranks.
    """
    trace, events = observation.trace, observation.trace.events
    if observation.has_device:
        work = observation.launches.work_rows
        is_collective = events.kind[work] == Kind.COLLECTIVE
        rows, calls = work[is_collective], observation.launches.call_rows[is_collective]
    else:
        rows = host_collective_rows(trace)
        calls = _host_calls(trace, rows)
    if not rows.size:
        return Collectives(rows, calls, (), (), (), rows)
    places = surroundings(trace, tree, calls)
    names = [trace.names[name] for name in events.name_id[rows].tolist()]
    ranges = _ranges_around(trace, calls)
    exchanges = places.nearest(lambda name: name == EXCHANGE)
    recorded = [
        own or called or ranged
        for own, called, ranged in zip(*(_messages(trace, at) for at in (rows, exchanges, ranges)), strict=True)
    ]
    asked = _names(trace, places.nearest(lambda name: name.startswith(_OPERATORS)))
    kinds = tuple(map(_kind, recorded, asked, _names(trace, ranges), names))
    messages = tuple(_completed(trace, message, kind) for message, kind in zip(recorded, kinds, strict=True))
    purposes = purposes_of(kinds, messages, names, places, observation.thread)
    ends, starts = events.end_ns[rows], events.start_ns[rows]
    sending_ns = ends - starts - waits.measure_in(starts, ends)
    return Collectives(rows, calls, kinds, purposes, messages, sending_ns)


def _names(trace: Trace, rows: Int64) -> list[str]:
    """Return the name of each event; empty for NONE."""
    return ["" if row == NONE else trace.names[trace.events.name_id[row]] for row in rows.tolist()]


def _kind(message: Message | None, asked: str, range_name: str, name: str) -> CollectiveKind:
    """Return the kind from the recorded arguments, else the operator, else the range, else the kernel.

    Gloo runs a reduce-scatter as an all-reduce: what the program asked for counts.
    """
    told = (message.collective if message else "", asked, range_name, name)
    found = (kind_named(text) for text in told if text)
    return next((kind for kind in found if kind is not CollectiveKind.OTHER), CollectiveKind.OTHER)


def _messages(trace: Trace, rows: Int64) -> list[Message | None]:
    numbers = trace.details.message_id.at(rows, np.int32(NONE))
    return [None if number == NONE else trace.messages[number] for number in numbers.tolist()]


def _completed(trace: Trace, message: Message | None, kind: CollectiveKind) -> Message | None:
    """Fill in the number of all ranks for the default group, and the output of an all-gather."""
    if message is None:
        return None
    size = message.group_size
    if not size and message.group in _DEFAULT_GROUPS and trace.distributed:
        size = trace.distributed.world_size
        message = replace(message, group_size=size if size and size > 0 else None)
    is_output_unknown = kind is CollectiveKind.ALL_GATHER and message.out_elements is None
    if is_output_unknown and message.in_elements and message.group_size:
        message = replace(message, out_elements=message.in_elements * message.group_size)
    return message


def _ranges_around(trace: Trace, call_rows: Int64) -> Int64:
    """Return the range of a backend (``nccl:all_to_all``) around each launch; NONE if there is none."""
    events, ranges = trace.events, host_collective_rows(trace)
    known = np.flatnonzero(call_rows != NONE)
    result = np.full(call_rows.size, NONE, dtype=np.int64)
    if not ranges.size or not known.size:
        return result
    rows = np.concatenate((ranges, call_rows[known]))
    is_launch = np.arange(rows.size) >= ranges.size
    order = np.lexsort((is_launch, events.start_ns[rows], events.thread[rows]))
    last = np.maximum.accumulate(np.where(is_launch[order], NONE, np.arange(rows.size)))
    before = np.full(rows.size, NONE, dtype=np.int64)
    before[order] = np.where(last == NONE, NONE, rows[order][last])
    candidate, call = before[is_launch], call_rows[known]
    holds = (
        (candidate != NONE)
        & (events.thread[candidate] == events.thread[call])
        & (events.end_ns[candidate] > events.start_ns[call])
    )
    result[known] = np.where(holds, candidate, NONE)
    return result


def _host_calls(trace: Trace, rows: Int64) -> Int64:
    """Return the operator that started each host-side collective: a backend works through its queue in order.

    If their numbers differ, because some were recorded without the other, those of a kind are matched whose numbers
    agree; NONE for the rest.
    """
    events = trace.events
    calls = rows_named(trace, Kind.OPERATOR, lambda name: name.startswith(_OPERATORS))
    if calls.size == rows.size:
        return calls
    result = np.full(rows.size, NONE, dtype=np.int64)
    ranged, called = (
        np.array([list(CollectiveKind).index(kind_named(trace.names[name])) for name in events.name_id[some].tolist()])
        for some in (rows, calls)
    )
    for number in range(len(CollectiveKind)):
        theirs, mine = np.flatnonzero(called == number), np.flatnonzero(ranged == number)
        if theirs.size == mine.size:
            result[mine] = calls[theirs]
    return result


def communication_rows(
    found: Collectives, events: EventTable, communication: SpanSet, step_count: int
) -> tuple[CommunicationRow, ...]:
    """Return the figures of each kind and purpose, most exposed time first.

    ``found``: the collectives of the kept steps. ``communication``: exposed communication of the kept steps.
    """
    pairs = dict.fromkeys(zip(found.kinds, found.purposes, strict=True))
    rows = [_row(found, events, communication, max(step_count, 1), *pair) for pair in pairs]
    return tuple(sorted(rows, key=lambda row: (-row.exposed_ns_per_step, -row.total_ns_per_step)))


def _row(  # noqa: PLR0913, PLR0917  # all that the figures depend on
    found: Collectives,
    events: EventTable,
    communication: SpanSet,
    step_count: int,
    kind: CollectiveKind,
    purpose: Purpose,
) -> CommunicationRow:
    mine = found.of((purpose,), (kind,))
    size_bytes, sending_ns = mine.size_bytes, int(mine.sending_ns.sum())
    total_bytes = float(size_bytes.sum()) if (size_bytes != NONE).all() else None
    rate = total_bytes * 1e9 / sending_ns if total_bytes and sending_ns else None
    groups = {message.group_size if message else None for message in mine.messages}
    group_size = groups.pop() if len(groups) == 1 else None
    factor = bus_factor(kind, group_size)
    rates = mine.bus_bytes_per_s[size_bytes >= LARGE_MESSAGE_BYTES]
    rates = rates[~np.isnan(rates)]
    return CommunicationRow(
        kind,
        purpose,
        len(mine) / step_count,
        events.spans(mine.rows).total_ns / step_count,
        exposed_alone(found, mine, events, communication).total_ns / step_count,
        None if total_bytes is None else total_bytes / step_count,
        rate,
        rate * factor if rate and factor else None,
        float(rates.max()) if rates.size else None,
        group_size,
    )


def exposed_alone(found: Collectives, mine: Collectives, events: EventTable, communication: SpanSet) -> SpanSet:
    """Return the exposed time in which only some of the collectives run: a fix of these alone can save no more."""
    others = without(found.rows, mine.rows)
    return (events.spans(mine.rows) & communication) - events.spans(others)


def purposes_by_exposure(
    found: Collectives, events: EventTable, communication: SpanSet
) -> Sequence[tuple[Purpose, SpanSet]]:
    """Return the exposed time of each purpose that occurs, longest first."""
    exposed = (
        (purpose, exposed_alone(found, found.of((purpose,)), events, communication))
        for purpose in dict.fromkeys(found.purposes)
    )
    return sorted(exposed, key=lambda pair: -pair[1].total_ns)


MOST_CALLS, MOST_DESCRIBED = 3000, 400
"""Collectives of a rank that are compared with those of other ranks, and those with what the rank did before: a rank
of a job takes less than 100 kB."""


def collective_calls(
    found: Collectives, trace: Trace, table: StepTable, partition: Mapping[Category, SpanSet]
) -> CollectiveCalls:
    """Return those collectives of the kept steps in which all ranks take part; of many, those of the first steps."""
    events, world_size = trace.events, trace.distributed.world_size if trace.distributed else None
    position = step_positions(events, found.rows, table.kept)
    of_all = (
        kind is not CollectiveKind.SEND_RECEIVE
        and (message is None or None in {message.group_size, world_size} or message.group_size == world_size)
        for kind, message in zip(found.kinds, found.messages, strict=True)
    )
    chosen = np.flatnonzero((position != NONE) & np.fromiter(of_all, np.bool_, len(found)))
    if chosen.size > MOST_CALLS:  # whole steps, so that all ranks leave out the same
        last = position[chosen[MOST_CALLS]]
        whole = chosen[position[chosen] < last]
        chosen = whole if whole.size else chosen[:MOST_CALLS]
    numbers = np.array([step.index for step in table.kept], dtype=np.int64)
    kinds, rows, of_step = list(CollectiveKind), found.rows[chosen], position[chosen]
    return CollectiveCalls(
        numbers[of_step],
        events.start_ns[rows],
        events.duration_ns[rows],
        np.array([kinds.index(found.kinds[place]) for place in chosen.tolist()], dtype=np.int64),
        _before(events, rows[:MOST_DESCRIBED], of_step, table.kept, partition),
    )


def _before(
    events: EventTable, rows: Int64, position: Int64, steps: Sequence[Step], partition: Mapping[Category, SpanSet]
) -> Int64:
    """Return the time per category from the end of the collectives before to each start.

    It begins with the step if no collective of this step or of the one right before it was recorded.
    """
    starts, ends = events.start_ns[rows], np.maximum.accumulate(events.end_ns[rows])
    own = position[: rows.size]
    numbers = np.array([one.index for one in steps], dtype=np.int64)[own]
    begins = np.array([one.start_ns for one in steps], dtype=np.int64)[own]
    follows = np.append(False, np.diff(numbers) <= 1)[: rows.size]
    since = np.minimum(np.where(follows, np.append(0, ends[:-1])[: rows.size], begins), starts)
    none = SpanSet.empty()
    parts = (partition.get(category, none) for category in Category)
    return np.stack([spans.measure_in(since, starts) for spans in parts], axis=1)


def step_positions(events: EventTable, rows: Int64, steps: Sequence[Step]) -> Int64:
    """Return the position of the step in whose window each event starts; NONE outside."""
    return position_at([(step.start_ns, step.end_ns) for step in steps], events.start_ns[rows])


_NOT_LETTERS = re.compile(r"[^a-z]")

_NAMES = (
    ("barrier", CollectiveKind.BARRIER),
    ("alltoall", CollectiveKind.ALL_TO_ALL),
    ("hybridep", CollectiveKind.ALL_TO_ALL),
    ("epdispatch", CollectiveKind.ALL_TO_ALL),
    ("epcombine", CollectiveKind.ALL_TO_ALL),
    ("moeaa", CollectiveKind.ALL_TO_ALL),
    ("reducescatter", CollectiveKind.REDUCE_SCATTER),
    ("allgather", CollectiveKind.ALL_GATHER),
    ("allreduce", CollectiveKind.ALL_REDUCE),
    ("crossdevicereduce", CollectiveKind.ALL_REDUCE),
    ("quickreduce", CollectiveKind.ALL_REDUCE),
    ("oneshotreduce", CollectiveKind.ALL_REDUCE),
    ("broadcast", CollectiveKind.BROADCAST),
    ("sendrecv", CollectiveKind.SEND_RECEIVE),
)
"""Parts of names without their separators, most specific first. Torch writes ``_allgather_base`` and ``all_to_allv``,
NCCL ``AllGather``, ranges ``nccl:all_reduce``. Libraries for experts have all-to-alls only:
``hybrid_ep::dispatch_kernel``, ``EpCombineIntraNodeKernel``, ``moeA2ADispatchKernel``."""

_WORDS = {
    "send": CollectiveKind.SEND_RECEIVE,
    "recv": CollectiveKind.SEND_RECEIVE,
    "isend": CollectiveKind.SEND_RECEIVE,
    "irecv": CollectiveKind.SEND_RECEIVE,
    "reduce": CollectiveKind.REDUCE,
    "dispatch": CollectiveKind.ALL_TO_ALL,
    "combine": CollectiveKind.ALL_TO_ALL,
    "notify": CollectiveKind.ALL_TO_ALL,
}
"""Whole words. DeepEP names the halves of its all-to-all ``dispatch`` and ``combine``, and what precedes them
``cached_notify``."""


def kind_named(name: str) -> CollectiveKind:
    """Return the kind that a name tells; OTHER if it tells none."""
    lower = name.lower()
    letters = _NOT_LETTERS.sub("", lower)
    for part, kind in _NAMES:
        if part in letters:
            return kind
    return next((_WORDS[word] for word in _NOT_LETTERS.sub(" ", lower).split() if word in _WORDS), CollectiveKind.OTHER)


LARGE_MESSAGE_BYTES = 4 << 20
"""Smallest message whose time is mostly transfer: below, start-up cost is a noticeable part of it."""


def bus_factor(kind: CollectiveKind, group_size: int | None) -> float | None:
    """Return the ratio of bus bandwidth to algorithm bandwidth; None if it depends on an unknown group size.

    Reductions inside the network's switches need fewer transfers; a recording does not show them, so the figure is
    then too high.
    """
    match kind:
        case CollectiveKind.BROADCAST | CollectiveKind.REDUCE | CollectiveKind.SEND_RECEIVE:
            return 1.0
        case CollectiveKind.ALL_REDUCE if group_size:
            return 2 * (group_size - 1) / group_size
        case CollectiveKind.ALL_GATHER | CollectiveKind.REDUCE_SCATTER | CollectiveKind.ALL_TO_ALL if group_size:
            return (group_size - 1) / group_size
        case _:
            return None
