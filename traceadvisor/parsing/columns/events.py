"""Collect events, chunk by chunk, into the columns of a trace."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceadvisor.hardware.profiler_names import Accelerator, accelerator_of
from traceadvisor.model.arrays import Int32, Int64, Mask
from traceadvisor.model.events import DEVICE_WORK, NONE, EventTable, Kind
from traceadvisor.model.limits import LIMITS
from traceadvisor.model.trace import AllocatorSamples, Details, PythonCalls, Thread
from traceadvisor.parsing.columns.categories import tell, with_tracks_joined
from traceadvisor.parsing.columns.details import DetailColumns
from traceadvisor.parsing.columns.growing import Parts, float64, keys
from traceadvisor.parsing.columns.interning import Places, Shortener, Signatures
from traceadvisor.parsing.columns.timestamps import nanoseconds
from traceadvisor.parsing.json.events import CounterEvent, Event, InstantEvent, KeyArgs, MetadataEvent, TimedEvent

MOST_NS = 1 << 61
"""Largest time or duration (the year 2043), so that ends and differences fit 64 bits."""

_ON_DEVICE = np.arange(len(Kind)) >= Kind.KERNEL
_ON_DEVICE[Kind.PYTHON] = False
"""Whether a kind runs on the device, by kind."""

MOST_COUNTERS = 10
_COUNTERS = re.compile(r"GPU -?\d{1,10} Counters")
"""Name of the process of a GPU's counters, as torch 2.15 writes them (``torch/profiler/_cuspy/trace.py``)."""

_NO_LINE = np.array([NONE], np.int32)
_FIRST_LINES, _LINE_OF_EVERY = 64, 16

_WRITTEN_TOGETHER = ((Kind.OPERATOR, Kind.ANNOTATION), (Kind.RUNTIME,), (*DEVICE_WORK, Kind.UNREAD))
"""Kinds of events that a profiler writes in one go, roughly in order of time: often one such group after another."""


class Columns:
    """Collects events into the tables of a :class:`~traceadvisor.model.trace.Trace`."""

    def __init__(self, longest_text: int = LIMITS.text_length, *, details: bool = True) -> None:
        self._shortened = Shortener(longest_text)
        self._signatures = Signatures(self._shortened)
        self._places = Places(self._shortened)
        self._thread_names: dict[tuple[str, str], str] = {}
        self._device_processes: set[str] = set()
        self._on_device: set[str] = set()
        self._wants_details = details
        self._main = Parts()
        self._python = Parts()
        self.details = DetailColumns(self._shortened)
        """Columns of only some events; only sequence numbers if details are not wanted."""

        self.dropped = 0
        """Timed events without a usable time."""

        self.counters: set[str] = set()
        """Some names of hardware counters, whose samples are not kept."""

    def add(self, events: Sequence[Event]) -> None:
        """Add a chunk of events; their raw members are not kept."""
        timed = [event for event in events if event.__class__ is TimedEvent]
        others = set(map(type, events)) if len(timed) < len(events) else set()
        if InstantEvent in others and self._wants_details:
            self.details.add_memory([event for event in events if event.__class__ is InstantEvent], self._signatures)
        if MetadataEvent in others:
            self._name_tracks([event for event in events if event.__class__ is MetadataEvent])
        if CounterEvent in others:
            self._name_counters([event for event in events if event.__class__ is CounterEvent])
        if timed:
            self._add_timed(timed)

    def _add_timed(self, timed: list[TimedEvent[Any]]) -> None:
        signature = self._signatures.of(timed)
        if self._signatures.has_untold:
            for event in timed:
                tell(event)
            signature = self._signatures.of(timed)
        start_ns = nanoseconds([event.ts for event in timed])
        duration_ns = _rounded_nanoseconds([event.dur for event in timed])
        kind = np.frombuffer(self._signatures.kinds, np.int8)[signature]
        usable = (start_ns > -MOST_NS) & (start_ns < MOST_NS) & (duration_ns >= 0)
        is_python = kind == Kind.PYTHON
        if is_python.any() or not usable.all():
            self.dropped += int(usable.size - usable.sum())
            python, main = usable & is_python, usable & ~is_python
            self._add_lines(timed, python)
            self._python.add_all(
                start_ns=start_ns[python], duration_ns=duration_ns[python], signature=signature[python]
            )
            start_ns, duration_ns, signature, kind = start_ns[main], duration_ns[main], signature[main], kind[main]
            timed = list(compress(timed, main.tobytes()))
        self._main.add_all(start_ns=start_ns, duration_ns=duration_ns, signature=signature)
        self._add_args([event.args for event in timed], kind, signature)

    def _add_lines(self, timed: list[TimedEvent[Any]], python: Mask) -> None:
        """Add the lines of Python calls, before their other columns; no column if there are none.

        Torch writes a line into all calls that Python makes, or into none, so a part of a chunk tells.
        """
        rows = np.flatnonzero(python) if self._wants_details else np.empty(0, np.int64)
        some = np.concatenate((rows[:_FIRST_LINES], rows[_FIRST_LINES::_LINE_OF_EVERY])).tolist()
        if any(timed[row].args.call_from for row in some):
            places, texts = [event.args.call_from for event in compress(timed, python.tobytes())], self.details.texts
            numbers = np.fromiter(map(texts.__getitem__, places), np.int32, len(places))
            numbers[numbers == texts.get("", NONE)] = NONE
            self._python.fill("call_from", _NO_LINE, self._python.size("start_ns"))
            self._python.add("call_from", numbers)

    def _add_args(self, args: list[Any], kind: NDArray[np.int8], signature: Int32) -> None:
        """Add the rest of the main table, and the details."""
        on_device = _ON_DEVICE[kind]
        place = np.full(kind.size, NONE, np.int32)
        if on_device.any():
            place[on_device] = [self._places[arg.device][arg.stream] for arg in compress(args, on_device.tobytes())]
        correlation = keys([arg.correlation for arg in args])
        self._main.add_all(correlation=correlation, external_id=_external_ids(args), place=place)
        if self._signatures.unknown_categories:
            self._note_device_work(args, signature)
        if self._wants_details:
            self.details.add(args, kind, on_device, self._signatures, signature)
        self.details.add_sequence(args, kind)

    def _name_tracks(self, events: Sequence[MetadataEvent]) -> None:
        for event in events:
            if event.name == "process_labels" and event.args.labels and not event.args.labels.startswith("CPU"):
                self._device_processes.add(self._shortened(str(event.pid)))
            if event.name == "thread_name" and event.args.name:
                pid, tid, name = map(self._shortened, (str(event.pid), str(event.tid), event.args.name))
                self._thread_names[pid, tid] = name

    def _name_counters(self, events: Sequence[CounterEvent]) -> None:
        """Note the names of torch's samples of hardware, as many as a note lists."""
        for event in events:
            if len(self.counters) < MOST_COUNTERS and _is_of_hardware(event):
                self.counters.add(self._shortened(event.name))

    def _note_device_work(self, args: list[Any], signature: Int32) -> None:
        """Note unknown categories of events that have a device or a stream."""
        unknown = np.frombuffer(self._signatures.is_unknown, np.int8)[signature]
        categories = self._signatures.categories()
        for row in np.flatnonzero(unknown).tolist():
            if args[row].device != NONE or args[row].stream != NONE:
                self._on_device.add(categories[signature[row]])

    def move(self, other: Columns) -> None:
        """Append the columns of the events that follow; the other object is used up.

        The result is the same as if all events had been added to this one: whatever is numbered gets its number where
        it occurs first.
        """
        signatures, ids = self._signatures.merged(other._signatures)
        self._main.move(other._main, {"signature": signatures, "place": self._places.merged(other._places)})
        texts = self.details.move(other.details, ids)
        if other._python.size("call_from"):
            self._python.fill("call_from", _NO_LINE, self._python.size("start_ns"))
        self._python.move(other._python, {"signature": signatures, "call_from": texts})
        self._thread_names |= other._thread_names
        self._device_processes |= other._device_processes
        self._on_device |= other._on_device
        self.counters |= other.counters
        self._shortened.count += other._shortened.count
        self.dropped += other.dropped

    # -- results ------------------------------------------------------------------------------------------------

    def memory(self, zero_ns: int) -> AllocatorSamples:
        """Return the allocator samples, with times relative to the absolute time ``zero_ns``."""
        return self.details.memory(zero_ns, self._signatures)

    @property
    def cut_texts(self) -> int:
        """Number of texts that were shortened."""
        return self._shortened.count

    @property
    def names(self) -> tuple[str, ...]:
        """Each distinct event name once."""
        return tuple(self._signatures.names)

    @property
    def streams(self) -> tuple[str, ...]:
        """Each distinct stream once."""
        return tuple(self._places.streams)

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Each distinct thread once, with its name if recorded."""
        return tuple(Thread(*key, self._thread_names.get(key)) for key in self._signatures.threads)

    @property
    def unknown_categories(self) -> frozenset[str]:
        """Categories that no profiler is known to write."""
        unknown = frozenset(self._signatures.unknown_categories)
        if "" in unknown and (one := self.accelerator) and one.tracks:
            return unknown - {""}
        return unknown

    @property
    def categories(self) -> frozenset[str]:
        """Categories of the timed events."""
        return frozenset(self._signatures.categories())

    @property
    def has_torch_events(self) -> bool:
        """Whether some timed events have names or categories that only a profiler of torch writes."""
        one = self.accelerator
        return bool(one and one.tracks) or self._signatures.has_torch_events

    @property
    def unread_work(self) -> frozenset[str]:
        """Those among them of events on a device."""
        on_device = self._on_device | self._signatures.unknown_of(self._device_processes)
        return self.unknown_categories & on_device

    @property
    def accelerator(self) -> Accelerator | None:
        """The accelerator of the recording, by its categories and runtime calls."""
        return accelerator_of(self._signatures.signs())

    def tables(self, *, is_cut: bool = False) -> tuple[EventTable, Details, PythonCalls, int, int | None]:
        """Return the tables, sorted by start, the absolute time in nanoseconds of their zero, and that until which a
        file that is cut off holds every event; None for another.

        Call once: columns are released one by one, so that peak memory is little more than the tables.
        """
        start_ns, python_start_ns = self._main.whole("start_ns", np.int64), self._python.whole("start_ns", np.int64)
        zero = min((int(column.min()) for column in (start_ns, python_start_ns) if column.size), default=0)
        start_ns -= zero
        python_start_ns -= zero
        order, start_ns, duration_ns = _by_start(start_ns, self._main.whole("duration_ns", np.int64))
        signature, place = self._main.whole("signature", np.int32)[order], self._main.whole("place", np.int32)[order]
        events = EventTable(
            start_ns=start_ns,
            duration_ns=duration_ns,
            name_id=np.array(self._signatures.name_ids, np.int32)[signature],
            kind=np.array(self._signatures.kinds, np.int8)[signature],
            device=_at(self._places.devices, place),
            stream=_at(self._places.stream_ids, place),
            thread=np.where(place == NONE, np.array(self._signatures.thread_ids, np.int32)[signature], NONE),
            **{name: self._main.whole(name, np.int64)[order] for name in ("correlation", "external_id")},
            byte_count=self.details.byte_counts(order.size)[order],
        )
        if self.unread_work:
            unread = np.isin(self._signatures.categories(), list(self.unread_work))
            events = replace(events, kind=np.where(unread[signature], np.int8(Kind.UNREAD), events.kind))
        if self._signatures.has_untold:
            events = with_tracks_joined(events, self.names, self.threads, self._signatures.categories(), signature)
        whole_ns = zero + _whole_until_ns(order, events) if is_cut else None
        return events, self.details.details(order), self._python_calls(python_start_ns), zero, whole_ns

    def _python_calls(self, start_ns: Int64) -> PythonCalls:
        order, start_ns, duration_ns = _by_start(start_ns, self._python.whole("duration_ns", np.int64))
        signature = self._python.whole("signature", np.int32)[order]
        call_from: Int32 = np.broadcast_to(_NO_LINE, order.shape)  # takes no memory
        if self._python.size("call_from"):
            self._python.fill("call_from", _NO_LINE, order.size)
            call_from = self._python.whole("call_from", np.int32)[order]
        return PythonCalls(
            start_ns,
            start_ns + duration_ns,
            np.array(self._signatures.name_ids, np.int32)[signature],
            np.array(self._signatures.thread_ids, np.int32)[signature],
            call_from,
        )


def _is_of_hardware(event: CounterEvent) -> bool:
    of_process = isinstance(event.pid, str) and _COUNTERS.fullmatch(event.pid) is not None
    return of_process or event.cat == "hardware_counters"


def _by_start(start_ns: Int64, duration_ns: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the order by start, longest first among equal starts, and starts and durations in that order."""
    order = np.argsort(start_ns, kind="stable")  # fast, because a trace is a few sorted runs; ties are rare
    in_order = start_ns[order]
    follows = np.zeros(order.size + 1, np.bool_)
    follows[1:-1] = in_order[1:] == in_order[:-1]
    tied = np.flatnonzero(follows[1:] | follows[:-1])
    rows = order[tied]
    order[tied] = rows[np.lexsort((-duration_ns[rows], start_ns[rows]))]
    return order, in_order, duration_ns[order]


def _at(values: array[int], place: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the value of each place; NONE without a place."""
    return np.append(np.array(values, np.int32), np.int32(NONE))[place]


def _rounded_nanoseconds(microseconds: list[float]) -> Int64:
    """Return durations in nanoseconds, rounded half up; NONE if invalid; clamped on overflow."""
    with np.errstate(over="ignore"):
        values = float64(microseconds) * 1000 + (0.5 + 1e-6)  # a double loses less than that
    return np.where(values >= 0, np.minimum(values, MOST_NS), NONE).astype(np.int64)


def _external_ids(args: list[KeyArgs]) -> Int64:
    """Return the external ids, under either of their names."""
    ids = keys([arg.external_id for arg in args])
    unknown = ids == NONE
    if unknown.any():
        ids = ids.copy()
        ids[unknown] = keys([arg.external_id_2021 for arg in compress(args, unknown.tobytes())])
    return ids


def _whole_until_ns(order: Int64, events: EventTable) -> int:
    """Return the instant before which no event is missing behind the end of a file that is cut off.

    A group goes on behind the end unless its last event lies further from there than any two of its events from each
    other. What follows may be as much earlier than the latest event as some of the group's events already are, judged
    by starts or by ends. A group of which the file holds nothing is not noticed.

    Args:
        order: the place of each event in the file.
        events: the events.
    """
    in_file = np.argsort(order)
    times = events.start_ns[in_file], events.end_ns[in_file]
    reached = []
    for group in _WRITTEN_TOGETHER:
        places = np.flatnonzero(np.isin(events.kind[in_file], group))
        if places.size and order.size - places[-1] <= np.diff(places).max(initial=1):
            reached.append(max(_reached_ns(one[places]) for one in times))
    return min(reached, default=0)


def _reached_ns(times_ns: Int64) -> int:
    latest_ns = np.maximum.accumulate(times_ns)
    return int(latest_ns[-1] - (latest_ns - times_ns).max())
