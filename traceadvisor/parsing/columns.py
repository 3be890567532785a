"""Events, window by window, into the columns of a trace."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceadvisor.model.arrays import Float64, Int32, Int64
from traceadvisor.model.events import NONE, EventTable, Kind, Sparse
from traceadvisor.model.trace import AllocatorSamples, Details, PythonCalls, Thread
from traceadvisor.parsing.categories import is_known, kind_of
from traceadvisor.parsing.event_json import Event
from traceadvisor.parsing.timestamps import nanoseconds

Key = TypeVar("Key", bound=Hashable)

MOST_NS = 1 << 61
"""No time or duration is larger (the year 2043 since 1970), so no end and no difference leaves 64 bits."""

MOST_RATIO = 1e9
"""No ratio of a kernel is larger; what is, or is no number, counts as not recorded."""

ColumnDict = dict[str, NDArray[Any]]

FIRST_DEVICE = 0
"""Where device work goes that does not say which device it ran on."""

HOST_DEVICE_TYPE = 0
"""Torch numbers its kinds of device; the host is the first."""

_COLUMNS = attrgetter("cat", "name", "pid", "tid", "ts", "dur", "args")
_ARGS = attrgetter("correlation", "external_id", "external_id_2021", "device", "stream", "byte_count")


class Interner(dict[Key, int], Generic[Key]):
    """Numbers each distinct key in order of first use: ``interner[key]``."""

    def __missing__(self, key: Key) -> int:
        self[key] = number = len(self)
        return number


class Signatures(dict[tuple[str, str], int]):
    """Numbers each distinct (category, name) and remembers the kind and the name it stands for."""

    def __init__(self) -> None:
        self.names: Interner[str] = Interner()
        self.name_ids: list[int] = []
        self.kinds: list[int] = []
        self.unknown_categories: set[str] = set()

    def __missing__(self, key: tuple[str, str]) -> int:
        category, name = key
        self[key] = number = len(self)
        self.name_ids.append(self.names[name])
        self.kinds.append(int(kind_of(category, name)))
        if not is_known(category):
            self.unknown_categories.add(category)
        return number


class ThreadKeys(dict[tuple[object, object], int]):
    """Numbers threads; a process or thread id is the same whether written as a number or as text."""

    def __init__(self) -> None:
        self.numbers: Interner[tuple[str, str]] = Interner()

    def __missing__(self, key: tuple[object, object]) -> int:
        self[key] = number = self.numbers[str(key[0]), str(key[1])]
        return number


class Columns:
    """Takes lists of events and gives the tables of a :class:`~traceadvisor.model.trace.Trace`."""

    def __init__(self) -> None:
        self._signatures = Signatures()
        self._thread_keys = ThreadKeys()
        self._thread_names: dict[tuple[object, object], str] = {}
        self._stream_keys: Interner[str] = Interner()
        self._stream_numbers: dict[int | str, int] = {NONE: NONE}
        self._texts: Interner[str] = Interner()
        self._type_lists: dict[bytes, int] = {}
        self._main: list[ColumnDict] = []
        self._python: list[ColumnDict] = []
        self._details: dict[str, tuple[list[int], list[Any]]] = {
            name: ([], []) for name in ("blocks_per_sm", "occupancy_percent", "stack_id", "dtypes_id")
        }
        self._memory: list[tuple[Int64, Int64, Int64, Int64]] = []
        self._row_count = 0
        self.dropped = 0
        """Timed events without a usable time."""

    def add(self, events: Sequence[Event]) -> None:
        """Take a window of events; their raw members are not kept."""
        timed = [event for event in events if event.ph == "X"]
        self._note_untimed(events)
        if not timed:
            return
        categories, names, processes, threads, starts, durations, args = zip(*map(_COLUMNS, timed), strict=True)
        signature = np.fromiter(map(self._signatures.__getitem__, zip(categories, names, strict=True)), np.int32)
        start_ns, duration_ns = nanoseconds(starts), nanoseconds([text or b"0" for text in durations])
        kind = np.array(self._signatures.kinds, dtype=np.int8)[signature]
        usable = (start_ns > -MOST_NS) & (start_ns < MOST_NS) & (duration_ns >= 0) & (duration_ns < MOST_NS)
        self.dropped += int(usable.size - usable.sum())
        columns: ColumnDict = {
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "name_id": np.array(self._signatures.name_ids, dtype=np.int32)[signature],
            "kind": kind,
            "thread": np.fromiter(
                map(self._thread_keys.__getitem__, zip(processes, threads, strict=True)), np.int32, len(timed)
            ),
        }
        python = usable & (kind == Kind.PYTHON)
        if python.any():
            self._python.append({name: column[python] for name, column in columns.items() if name != "kind"})
        kept = np.flatnonzero(usable & (kind != Kind.PYTHON))
        if kept.size:
            self._add_main({name: column[kept] for name, column in columns.items()}, [args[row] for row in kept])

    def _add_main(self, columns: ColumnDict, args: list[Any]) -> None:
        correlation, external, external_2021, device, stream, byte_count = zip(*map(_ARGS, args), strict=True)
        columns["correlation"] = _int64(correlation)
        columns["external_id"] = np.maximum(_int64(external), _int64(external_2021))
        columns["byte_count"] = _int64(byte_count)
        on_device = columns["kind"] >= Kind.KERNEL
        said = _int64(device, most=np.iinfo(np.int32).max)
        numbered = np.where(_int64(device) == NONE, FIRST_DEVICE, said)
        columns["device"] = np.where(on_device, numbered, NONE).astype(np.int32)
        columns["stream"] = np.where(on_device, [self._stream(key) for key in stream], NONE).astype(np.int32)
        columns["thread"] = np.where(on_device, NONE, columns["thread"])
        self._add_details(args)
        self._main.append(columns)
        self._row_count += len(args)

    def _stream(self, key: int | str) -> int:
        number = self._stream_numbers.get(key)
        if number is None:
            number = self._stream_numbers[key] = self._stream_keys[str(key)]
        return number

    def _add_details(self, args: list[Any]) -> None:
        for row, arg in enumerate(args, self._row_count):
            if arg.blocks_per_sm is not None:
                self._add_detail("blocks_per_sm", row, arg.blocks_per_sm)
            if arg.occupancy_percent is not None:
                self._add_detail("occupancy_percent", row, arg.occupancy_percent)
            if arg.call_stack:
                self._add_detail("stack_id", row, self._texts[arg.call_stack])
            if arg.input_types:
                self._add_detail("dtypes_id", row, self._type_list(bytes(arg.input_types)))

    def _add_detail(self, name: str, row: int, value: float) -> None:
        rows, values = self._details[name]
        rows.append(row)
        values.append(value)

    def _type_list(self, text: bytes) -> int:
        number = self._type_lists.get(text)
        if number is None:
            number = self._type_lists[text] = self._texts[_joined(text)]
        return number

    def _note_untimed(self, events: Sequence[Event]) -> None:
        """Names of threads, and what the caching allocator of a device holds at an instant."""
        allocator: list[Event] = []
        for event in events:
            if event.ph == "M" and event.name == "thread_name" and event.args.name:
                self._thread_names[str(event.pid), str(event.tid)] = event.args.name
            elif event.ph == "i" and event.args.allocated_bytes >= 0 and event.args.device_type > HOST_DEVICE_TYPE:
                allocator.append(event)
        if allocator:
            self._memory.append(
                (
                    nanoseconds([event.ts for event in allocator]),
                    _int64(tuple(event.args.device_id for event in allocator)),
                    _int64(tuple(event.args.allocated_bytes for event in allocator)),
                    _int64(tuple(event.args.reserved_bytes for event in allocator)),
                )
            )

    # -- results ------------------------------------------------------------------------------------------------

    def memory(self, zero_ns: int) -> AllocatorSamples:
        """What the devices' caching allocators held, counted from the absolute time ``zero_ns``."""
        parts = zip(*self._memory, strict=True) if self._memory else [(np.empty(0, np.int64),)] * 4
        start, device, allocated, reserved = (np.concatenate(part) for part in parts)
        order = np.argsort(start, kind="stable")
        return AllocatorSamples(start[order] - zero_ns, device[order], allocated[order], reserved[order])

    @property
    def names(self) -> tuple[str, ...]:
        """Each distinct event name once."""
        return tuple(self._signatures.names)

    @property
    def texts(self) -> tuple[str, ...]:
        """Each distinct call stack and type list once."""
        return tuple(self._texts)

    @property
    def streams(self) -> tuple[str, ...]:
        """Each distinct stream once."""
        return tuple(self._stream_keys)

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Each distinct thread once, with its name where the trace gives one."""
        return tuple(Thread(*key, self._thread_names.get(key)) for key in self._thread_keys.numbers)

    @property
    def unknown_categories(self) -> frozenset[str]:
        """Categories that no known generation writes."""
        return frozenset(self._signatures.unknown_categories)

    def tables(self) -> tuple[EventTable, Details, PythonCalls, int]:
        """The tables, sorted by start, and the absolute nanoseconds that their zero stands for."""
        main = {
            name: np.concatenate([part[name] for part in self._main] or [np.empty(0)]).astype(dtype, copy=False)
            for name, dtype in EventTable.dtypes().items()
        }
        python = {
            name: np.concatenate([part[name] for part in self._python] or [np.empty(0, np.int64)])
            for name in ("start_ns", "duration_ns", "name_id", "thread")
        }
        zero = min((int(starts.min()) for starts in (main["start_ns"], python["start_ns"]) if starts.size), default=0)
        order = np.lexsort((-main["duration_ns"], main["start_ns"]))
        main["start_ns"] -= zero
        events = EventTable(**{name: column[order] for name, column in main.items()})
        return events, self._sorted_details(order), _python_calls(python, zero), zero

    def _sorted_details(self, order: Int64) -> Details:
        position = np.empty_like(order)
        position[order] = np.arange(order.size)
        rows = {name: position[np.array(rows, dtype=np.int64)] for name, (rows, _) in self._details.items()}

        def floats(name: str) -> Sparse[np.float64]:
            values: Float64 = np.array(self._details[name][1], dtype=np.float64)
            by_row = np.argsort(rows[name])
            by_row = by_row[np.abs(values[by_row]) < MOST_RATIO]
            return Sparse(rows[name][by_row], values[by_row])

        def numbers(name: str) -> Sparse[np.int32]:
            values: Int32 = np.array(self._details[name][1], dtype=np.int32)
            return Sparse(np.sort(rows[name]), values[np.argsort(rows[name])])

        return Details(floats("blocks_per_sm"), floats("occupancy_percent"), numbers("stack_id"), numbers("dtypes_id"))


def _python_calls(columns: ColumnDict, zero: int) -> PythonCalls:
    order = np.lexsort((-columns["duration_ns"], columns["start_ns"]))
    start = columns["start_ns"][order] - zero
    return PythonCalls(
        start,
        start + columns["duration_ns"][order],
        columns["name_id"][order].astype(np.int32),
        columns["thread"][order].astype(np.int32),
    )


def _joined(types: bytes) -> str:
    """A list of types as one text; whatever else stands in its place as it is."""
    text = types.decode("utf-8", "replace")
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return ";".join(map(str, decoded)) if isinstance(decoded, list) else str(decoded)


def _int64(values: tuple[int | float | str, ...], *, most: int = np.iinfo(np.int64).max) -> Int64:
    """Integers as a column; text is read as a number, what is beyond ``most`` matches nothing."""
    try:
        numbers = np.array(values, dtype=np.int64)
    except (OverflowError, ValueError):
        numbers = np.array([_fitting(value) for value in values], dtype=np.int64)
    return np.where(np.abs(numbers) <= most, numbers, NONE)


def _fitting(value: float | str) -> int:
    try:
        number = int(value)
    except (OverflowError, ValueError):
        return NONE
    return number if abs(number) <= np.iinfo(np.int64).max else NONE
