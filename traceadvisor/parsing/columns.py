"""Events, window by window, into the columns of a trace."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceadvisor.model.arrays import Int32, Int64, Mask
from traceadvisor.model.events import NONE, EventTable, Kind, Sparse
from traceadvisor.model.limits import LIMITS
from traceadvisor.model.trace import AllocatorSamples, Details, PythonCalls, Thread
from traceadvisor.parsing.column_parts import Column, Parts
from traceadvisor.parsing.event_json import MISSING, Event, EventArgs, InstantEvent, MetadataEvent, TimedEvent
from traceadvisor.parsing.interning import Places, Shortener, Signatures, Texts, TypeLists
from traceadvisor.parsing.messages import message_bytes
from traceadvisor.parsing.timestamps import nanoseconds

MOST_NS = 1 << 61
"""No time or duration is larger (the year 2043 since 1970), so no end and no difference leaves 64 bits."""

MOST_RATIO = 1e9
"""No ratio of a kernel is larger; what is, or is no number, counts as not recorded."""

HOST_DEVICE_TYPE = 0
"""Torch numbers its kinds of device; the host is the first."""

_ON_DEVICE = np.arange(len(Kind)) >= Kind.KERNEL
_ON_DEVICE[Kind.PYTHON] = False
_SIZED = np.isin(np.arange(len(Kind)), (Kind.COPY_H2D, Kind.COPY_D2H, Kind.COPY_OTHER, Kind.MEMSET))
"""By kind."""


class Columns:
    """Takes lists of events and gives the tables of a :class:`~traceadvisor.model.trace.Trace`."""

    def __init__(self, longest_text: int = LIMITS.text_length) -> None:
        self._shortened = Shortener(longest_text)
        self._signatures = Signatures(self._shortened)
        self._places = Places(self._shortened)
        self._thread_names: dict[tuple[str, str], str] = {}
        self._texts = Texts(self._shortened)
        self._type_lists = TypeLists(self._texts)
        self._main = Parts()
        self._python = Parts()
        self._details = Parts()
        self._memory = Parts()
        self._row_count = 0
        self.dropped = 0
        """Timed events without a usable time."""

        self.has_types = False
        """Whether the types of operators' inputs were recorded."""

    def add(self, events: Sequence[Event]) -> None:
        """Take a window of events; their raw members are not kept."""
        timed = [event for event in events if event.__class__ is TimedEvent]
        if len(timed) < len(events):
            self._add_memory([event for event in events if event.__class__ is InstantEvent])
            self._name_threads([event for event in events if event.__class__ is MetadataEvent])
        if not timed:
            return
        signature = self._signatures.of(timed)
        start_ns = nanoseconds([event.ts for event in timed])
        duration_ns = _rounded_nanoseconds([event.dur for event in timed])
        kind = np.frombuffer(self._signatures.kinds, np.int8)[signature]
        usable = (start_ns > -MOST_NS) & (start_ns < MOST_NS) & (duration_ns >= 0)
        self.dropped += int(usable.size - usable.sum())
        for parts, rows in (
            (self._python, np.flatnonzero(usable & (kind == Kind.PYTHON))),
            (self._main, kept := np.flatnonzero(usable & (kind != Kind.PYTHON))),
        ):
            parts.add("start_ns", start_ns[rows])
            parts.add("duration_ns", duration_ns[rows])
            parts.add("signature", signature[rows])
        if kept.size:
            self._add_args([timed[row].args for row in kept.tolist()], kind[kept], signature[kept])

    def _add_args(self, args: list[EventArgs], kind: NDArray[np.int8], signature: Int32) -> None:
        """The rest of the main table, and what only some events have."""
        external = _keys([arg.external_id for arg in args])
        unknown = np.flatnonzero(external == NONE)
        external[unknown] = _keys([args[row].external_id_2021 for row in unknown.tolist()])
        on_device, is_sized = _ON_DEVICE[kind], _SIZED[kind]
        place = np.full(kind.size, NONE, np.int32)
        place[on_device] = [self._places[arg.device, arg.stream] for arg in _of(args, on_device)]
        byte_count = np.full(kind.size, NONE, np.int64)
        byte_count[is_sized] = _int64([arg.byte_count for arg in _of(args, is_sized)])
        has_message = np.frombuffer(self._signatures.has_message, np.bool_)[signature]
        messages = [(arg.message_elements, arg.message_type) for arg in _of(args, has_message)]
        byte_count[has_message] = [message_bytes(*message) for message in messages]
        self._main.add("correlation", _keys([arg.correlation for arg in args]))
        self._main.add("external_id", external)
        self._main.add("byte_count", byte_count)
        self._main.add("place", place)
        self._add_ratios(_of(args, on_device), np.flatnonzero(on_device))
        self._add_texts(_of(args, ~on_device), np.flatnonzero(~on_device))
        has_shapes = np.frombuffer(self._signatures.has_shapes, np.bool_)[signature]
        self._add_shapes(_of(args, has_shapes), np.flatnonzero(has_shapes))
        self._row_count += len(args)

    def _add_ratios(self, args: list[EventArgs], rows: Int64) -> None:
        for name, values in (
            ("blocks_per_sm", [arg.blocks_per_sm for arg in args]),
            ("occupancy_percent", [arg.occupancy_percent for arg in args]),
        ):
            column = np.array(values, np.float64)
            self._add_detail(name, rows, column, np.abs(column) < MOST_RATIO)

    def _add_texts(self, args: list[EventArgs], rows: Int64) -> None:
        stacks = [arg.call_stack for arg in args]
        if any(stacks):
            ids = np.fromiter(map(self._texts.__getitem__, stacks), np.int32, len(stacks))
            self._add_detail("stack_id", rows, ids, ids != self._texts.get("", NONE))
        self.has_types = self.has_types or any(arg.input_types is not MISSING for arg in args)

    def _add_shapes(self, args: list[EventArgs], rows: Int64) -> None:
        """Types, shapes and values, of the operators that somebody asks for them."""
        types = [bytes(arg.input_types) for arg in args]
        self._add_numbers("dtypes_id", self._type_lists, types, rows)
        for name, values in (
            ("dims_id", [arg.input_dims for arg in args]),
            ("concrete_id", [arg.concrete_inputs for arg in args]),
        ):
            self._add_numbers(name, self._texts, [bytes(value).decode("utf-8", "replace") for value in values], rows)

    def _add_numbers(self, name: str, numbers: Mapping[Any, int], texts: Sequence[str | bytes], rows: Int64) -> None:
        ids = np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts))
        self._add_detail(name, rows, ids, np.fromiter(map(bool, texts), np.bool_, len(texts)))

    def _add_detail(self, name: str, rows: Int64, values: Column, present: Mask) -> None:
        if present.any():
            self._details.add(f"{name} rows", rows[present] + self._row_count)
            self._details.add(name, values[present])

    def _name_threads(self, events: Sequence[MetadataEvent]) -> None:
        for event in events:
            if event.name == "thread_name" and event.args.name:
                pid, tid, name = map(self._shortened, (str(event.pid), str(event.tid), event.args.name))
                self._thread_names[pid, tid] = name

    def _add_memory(self, instants: Sequence[InstantEvent]) -> None:
        """What the caching allocator of a device holds at an instant."""
        events = [
            event for event in instants if event.args.allocated_bytes >= 0 and event.args.device_type > HOST_DEVICE_TYPE
        ]
        if events:
            self._memory.add("time_ns", nanoseconds([event.ts for event in events]))
            self._memory.add("device", _int64([event.args.device_id for event in events]))
            self._memory.add("allocated_bytes", _int64([event.args.allocated_bytes for event in events]))
            self._memory.add("reserved_bytes", _int64([event.args.reserved_bytes for event in events]))

    # -- results ------------------------------------------------------------------------------------------------

    def memory(self, zero_ns: int) -> AllocatorSamples:
        """What the devices' caching allocators held, counted from the absolute time ``zero_ns``."""
        time_ns = self._memory.whole("time_ns", np.int64) - zero_ns
        order = np.argsort(time_ns, kind="stable")
        others = ("device", "allocated_bytes", "reserved_bytes")
        return AllocatorSamples(time_ns[order], *(self._memory.whole(name, np.int64)[order] for name in others))

    @property
    def cut_texts(self) -> int:
        """How often a text was longer than is kept."""
        return self._shortened.count

    @property
    def names(self) -> tuple[str, ...]:
        """Each distinct event name once."""
        return tuple(self._signatures.names)

    @property
    def texts(self) -> tuple[str, ...]:
        """Each distinct call stack, type list, list of shapes and list of values once."""
        return tuple(self._texts)

    @property
    def streams(self) -> tuple[str, ...]:
        """Each distinct stream once."""
        return tuple(self._places.streams)

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Each distinct thread once, with its name where the trace gives one."""
        return tuple(Thread(*key, self._thread_names.get(key)) for key in self._signatures.threads)

    @property
    def unknown_categories(self) -> frozenset[str]:
        """Categories that no known generation writes."""
        return frozenset(self._signatures.unknown_categories)

    def tables(self) -> tuple[EventTable, Details, PythonCalls, int]:
        """The tables, sorted by start, and the absolute nanoseconds that their zero stands for.

        To be asked for once: the pieces are given up, column by column, so that hardly more than the tables is held.
        """
        starts = [self._main.whole("start_ns", np.int64), self._python.whole("start_ns", np.int64)]
        zero = min((int(column.min()) for column in starts if column.size), default=0)
        start_ns, python_start_ns = (column - zero for column in starts)
        del starts
        order, duration_ns = _by_start(start_ns, self._main.whole("duration_ns", np.int64))
        signature, place = self._main.whole("signature", np.int32)[order], self._main.whole("place", np.int32)[order]
        events = EventTable(
            start_ns=start_ns[order],
            duration_ns=duration_ns,
            name_id=np.array(self._signatures.name_ids, np.int32)[signature],
            kind=np.array(self._signatures.kinds, np.int8)[signature],
            device=_at(self._places.devices, place),
            stream=_at(self._places.stream_ids, place),
            thread=np.where(place == NONE, np.array(self._signatures.thread_ids, np.int32)[signature], NONE),
            **{name: self._main.whole(name, np.int64)[order] for name in ("correlation", "external_id", "byte_count")},
        )
        return events, self._sorted_details(order), self._python_calls(python_start_ns), zero

    def _python_calls(self, start_ns: Int64) -> PythonCalls:
        order, duration_ns = _by_start(start_ns, self._python.whole("duration_ns", np.int64))
        signature = self._python.whole("signature", np.int32)[order]
        return PythonCalls(
            start_ns[order],
            start_ns[order] + duration_ns,
            np.array(self._signatures.name_ids, np.int32)[signature],
            np.array(self._signatures.thread_ids, np.int32)[signature],
        )

    def _sorted_details(self, order: Int64) -> Details:
        position = np.empty(order.size, np.int64)
        position[order] = np.arange(order.size)

        def column(name: str, dtype: type[np.generic]) -> Sparse[Any]:
            rows = position[self._details.whole(f"{name} rows", np.int64)]
            by_row = np.argsort(rows)
            return Sparse(rows[by_row], self._details.whole(name, dtype)[by_row])

        return Details(
            blocks_per_sm=column("blocks_per_sm", np.float64),
            occupancy_percent=column("occupancy_percent", np.float64),
            stack_id=column("stack_id", np.int32),
            dtypes_id=column("dtypes_id", np.int32),
            dims_id=column("dims_id", np.int32),
            concrete_id=column("concrete_id", np.int32),
        )


def _by_start(start_ns: Int64, duration_ns: Int64) -> tuple[Int64, Int64]:
    """The order by start, the longest first among those that start together, and the durations in that order."""
    order = np.argsort(start_ns, kind="stable")  # fast, for a trace is a handful of sorted runs; ties are few
    follows = np.zeros(order.size + 1, np.bool_)
    follows[1:-1] = np.diff(start_ns[order]) == 0
    tied = np.flatnonzero(follows[1:] | follows[:-1])
    rows = order[tied]
    order[tied] = rows[np.lexsort((-duration_ns[rows], start_ns[rows]))]
    return order, duration_ns[order]


def _of(args: list[EventArgs], wanted: Mask) -> list[EventArgs]:
    return [args[row] for row in np.flatnonzero(wanted).tolist()]


def _at(values: array[int], place: NDArray[np.int32]) -> NDArray[np.int32]:
    """The value of each place; NONE where there is no place."""
    return np.append(np.array(values, np.int32), np.int32(NONE))[place]


def _rounded_nanoseconds(microseconds: list[float]) -> Int64:
    """Durations as whole nanoseconds, half of one rounded up; NONE for what is none, the most for what overflowed."""
    values = np.array(microseconds, np.float64) * 1000 + (0.5 + 1e-6)  # less than that is what a double lost
    return np.where(values >= 0, np.minimum(values, MOST_NS), NONE).astype(np.int64)


def _keys(values: list[int]) -> Int64:
    """Ids as a column: those of 64 bits stay distinct, the largest stands for none; longer ones match nothing."""
    try:
        return np.array(array("q", values))
    except OverflowError:
        return _int64([value - (1 << 64) if 1 << 63 <= value < 1 << 64 else value for value in values])


def _int64(values: list[Any]) -> Int64:
    """Integers as a column; text is read as a number, what is none or needs more than 64 bits matches nothing."""
    try:
        return np.array(array("q", values))
    except (OverflowError, TypeError):
        return np.array([_fitting(value) for value in values], dtype=np.int64)


def _fitting(value: float | str) -> int:
    try:
        number = int(value)
    except (OverflowError, ValueError):
        return NONE
    return number if abs(number) <= np.iinfo(np.int64).max else NONE
