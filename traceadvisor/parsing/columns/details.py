"""Columns that rules need and a breakdown does not: sizes, messages, stacks, types, shapes and allocator samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import compress
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceadvisor.model.arrays import Int32, Int64, Mask
from traceadvisor.model.communication import Message
from traceadvisor.model.events import NONE, Kind, Sparse
from traceadvisor.model.trace import AllocatorSamples, Details
from traceadvisor.parsing.columns.growing import ROWS, Column, Parts, float64, int64, keys
from traceadvisor.parsing.columns.interning import Interner, RawTexts, Shortener, Signatures, Texts, as_text, joined
from traceadvisor.parsing.columns.timestamps import nanoseconds
from traceadvisor.parsing.json.events import MISSING, EventArgs, InstantEvent, KeyArgs

MOST_RATIO = 1e9
"""Largest plausible ratio of a kernel; larger values and NaN count as not recorded."""

HOST_DEVICE_TYPE = 0
"""Torch's number for the CPU as a device type."""

_TEXTS = ("stack_id", "dtypes_id", "dims_id", "strides_id", "concrete_id")
"""Columns that hold numbers of texts."""

_MEMORY = {
    "device": "device_id",
    **{name: name for name in ("allocated_bytes", "reserved_bytes", "changed_bytes", "address")},
}
"""Columns of the allocators' samples, and the arguments that they hold."""

_SIZED = np.isin(np.arange(len(Kind)), (Kind.COPY_H2D, Kind.COPY_D2H, Kind.COPY_OTHER, Kind.MEMSET))
"""Whether a kind has a size, by kind."""


class DetailColumns:
    """Collects the arguments of the main table's events, chunk by chunk."""

    def __init__(self, shortened: Shortener) -> None:
        self.texts = Texts(shortened)
        """Each distinct call stack, line of a call, type list, list of shapes and list of values."""

        self.messages = _Messages(shortened)
        """The arguments of collectives, each distinct message once."""

        self._type_lists, self._values = RawTexts(self.texts, joined), RawTexts(self.texts, as_text)
        self._parts = Parts()
        self._memory = Parts()
        self._row_count = 0
        self.has_types = False
        """Whether input types of operators were recorded."""

        self.has_record_ids = False
        """Whether operators have the ids that torch writes since it always writes sequence numbers, too."""

    def add(
        self,
        args: list[EventArgs],
        kind: NDArray[np.int8],
        on_device: Mask,
        signatures: Signatures,
        signature: Int32,
    ) -> None:
        """Add the events of a chunk, in the order of the main table."""
        self._add_ratios(*_chosen(args, on_device))
        self._add_texts(*_chosen(args, ~on_device))
        self._add_sizes(*_chosen(args, _SIZED[kind]))
        self._add_ranks(*_chosen(args, kind == Kind.OTHER))
        self._add_messages(*_chosen(args, np.frombuffer(signatures.has_message, np.bool_)[signature]))
        self._add_shapes(*_chosen(args, np.frombuffer(signatures.has_shapes, np.bool_)[signature]))

    def add_sequence(self, args: Sequence[KeyArgs], kind: NDArray[np.int8]) -> None:
        """Add the sequence numbers of a chunk's operators; called after :meth:`add`, and also without it."""
        rows = np.flatnonzero(kind == Kind.OPERATOR)
        if rows.size:
            operators = [args[row] for row in rows.tolist()]
            numbers = int64([arg.sequence for arg in operators])
            self._add("sequence", rows, numbers, numbers >= 0)
            if not self.has_record_ids:
                record_ids = [arg.record_id for arg in operators]
                self.has_record_ids = record_ids.count(NONE) < len(record_ids)
        self._row_count += len(args)

    def _add_ratios(self, args: list[EventArgs], rows: Int64) -> None:
        if not args:
            return
        for name, values in (
            ("blocks_per_sm", [arg.blocks_per_sm for arg in args]),
            ("occupancy_percent", [arg.occupancy_percent for arg in args]),
        ):
            column = float64(values)
            self._add(name, rows, column, np.abs(column) < MOST_RATIO)

    def _add_texts(self, args: list[EventArgs], rows: Int64) -> None:
        stacks = [arg.call_stack for arg in args]
        if any(stacks):
            ids = np.fromiter(map(self.texts.__getitem__, stacks), np.int32, len(stacks))
            self._add("stack_id", rows, ids, ids != self.texts.get("", NONE))
        self.has_types = self.has_types or any(arg.input_types is not MISSING for arg in args)
        forward_thread = keys([arg.forward_thread for arg in args])
        self._add("forward_thread", rows, forward_thread, forward_thread > 0)

    def _add_sizes(self, args: list[EventArgs], rows: Int64) -> None:
        if args:
            self._add("byte_count", rows, int64([arg.byte_count for arg in args]), np.ones(rows.size, np.bool_))

    def _add_ranks(self, args: list[EventArgs], rows: Int64) -> None:
        for name in ("own_rank", "peer_rank"):
            ranks = int64([getattr(arg, name) for arg in args])
            self._add(name, rows, ranks, (ranks >= 0) & (ranks < _MOST_RANKS))

    def _add_messages(self, args: list[EventArgs], rows: Int64) -> None:
        if args:
            ids = np.fromiter(map(self.messages.number_of, args), np.int32, len(args))
            self._add("message_id", rows, ids, ids != NONE)

    def _add_shapes(self, args: list[EventArgs], rows: Int64) -> None:
        """Add types, shapes and values of operators that rules look at."""
        if not args:
            return
        self._add_numbers("dtypes_id", self._type_lists, [arg.input_types for arg in args], rows)
        self._add_numbers("dims_id", self._values, [arg.input_dims for arg in args], rows)
        self._add_numbers("strides_id", self._values, [arg.input_strides for arg in args], rows)
        self._add_numbers("concrete_id", self._values, [arg.concrete_inputs for arg in args], rows)

    def _add_numbers(self, name: str, numbers: RawTexts, raws: Sequence[msgspec.Raw], rows: Int64) -> None:
        texts = [bytes(raw) for raw in raws] if raws.count(MISSING) < len(raws) else [b""]  # one for all
        ids = np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts))
        self._add(name, rows, ids, np.fromiter(map(bool, texts), np.bool_, len(texts)))

    def _add(self, name: str, rows: Int64, values: Column, present: Mask) -> None:
        if present.any():
            self._parts.add(f"{name}{ROWS}", rows[present] + self._row_count)
            self._parts.add(name, values[present])

    def add_memory(self, instants: Sequence[InstantEvent], signatures: Signatures) -> None:
        """Add samples of the devices' caching allocators."""
        events = [
            event for event in instants if event.args.allocated_bytes >= 0 and event.args.device_type > HOST_DEVICE_TYPE
        ]
        if events:
            self._memory.add_all(
                time_ns=nanoseconds([event.ts for event in events]),
                process=int64(signatures.keys_of([event.pid for event in events])),
                thread=int64(signatures.keys_of([event.tid for event in events])),
                **{name: int64([getattr(event.args, arg) for event in events]) for name, arg in _MEMORY.items()},
            )

    def move(self, other: DetailColumns, ids: Int32) -> Int32:
        """Append the columns of another object.

        Args:
            other: the columns of the rows that follow.
            ids: the numbers here of its process and thread ids.

        Returns:
            The numbers here of its texts; NONE at the end.
        """
        texts = self.texts.numbers_of(other.texts)
        numbers = dict.fromkeys(_TEXTS, texts) | {"message_id": self.messages.numbers_of(other.messages)}
        self._parts.move(other._parts, numbers, self._row_count)
        self._memory.move(other._memory, dict.fromkeys(("process", "thread"), ids.astype(np.int64)))
        self._row_count += other._row_count
        self.has_types |= other.has_types
        self.has_record_ids |= other.has_record_ids
        return texts

    # -- results, each may be read once -----------------------------------------------------------------------

    def memory(self, zero_ns: int, signatures: Signatures) -> AllocatorSamples:
        """Return the allocator samples, with times relative to the absolute time ``zero_ns``."""
        time_ns = self._memory.whole("time_ns", np.int64) - zero_ns
        order = np.argsort(time_ns, kind="stable")

        def column(name: str) -> Int64:
            whole: Int64 = self._memory.whole(name, np.int64)[order]
            return whole

        if not time_ns.size:
            return AllocatorSamples(*(time_ns for _ in fields(AllocatorSamples)))
        pairs, place = np.unique(np.stack([column("process"), column("thread")], axis=1), axis=0, return_inverse=True)
        threads = np.array([signatures.thread_of(*pair) for pair in pairs.tolist()], np.int64)
        return AllocatorSamples(
            time_ns[order], thread=threads[place.reshape(-1)], **{name: column(name) for name in _MEMORY}
        )

    def byte_counts(self, row_count: int) -> Int64:
        """Return the byte count of each main-table row, in the order of addition; shape ``(row_count,)``."""
        counts = np.full(row_count, NONE, np.int64)
        counts[self._parts.whole(f"byte_count{ROWS}", np.int64)] = self._parts.whole("byte_count", np.int64)
        return counts

    def details(self, order: Int64) -> Details:
        """Return the other columns, reordered like the main table."""
        position = np.empty(order.size, np.int64)
        position[order] = np.arange(order.size)

        def column(name: str, dtype: type[np.generic]) -> Sparse[Any]:
            rows = position[self._parts.whole(f"{name}{ROWS}", np.int64)]
            by_row = np.argsort(rows)
            return Sparse(rows[by_row], self._parts.whole(name, dtype)[by_row])

        columns: dict[str, type[np.generic]] = {
            **dict.fromkeys(("blocks_per_sm", "occupancy_percent"), np.float64),
            **dict.fromkeys((*_TEXTS, "message_id"), np.int32),
            **dict.fromkeys(("sequence", "forward_thread", "own_rank", "peer_rank"), np.int64),
        }
        return Details(**{name: column(name, dtype) for name, dtype in columns.items()})


def _chosen(args: list[EventArgs], wanted: Mask) -> tuple[list[EventArgs], Int64]:
    """Return some events and their row numbers."""
    rows = np.flatnonzero(wanted)
    if rows.size == len(args):
        return args, rows
    return list(compress(args, wanted.tobytes())) if rows.size else [], rows


_MOST_ELEMENTS = 1 << 48
"""Largest plausible message; larger ones, negative ones and other values count as not recorded."""

_MOST_RANKS = 1 << 24
"""Largest plausible group; larger ranks mean none."""

_ELEMENT_BYTES = {
    "bool": 1,
    "byte": 1,
    "char": 1,
    "unsigned char": 1,
    "signed char": 1,
    "int8_t": 1,
    "uint8_t": 1,
    "short": 2,
    "half": 2,
    "bfloat16": 2,
    "int": 4,
    "float": 4,
    "long": 8,
    "long int": 8,
    "double": 8,
    "complexfloat": 8,
    "complexdouble": 16,
}
"""By torch's names of element types (``c10::ScalarType``, and C++ names in ranges), in lower case; 8-bit floats are
recognised by prefix."""


def element_bytes(name: str) -> int | None:
    """Return the bytes of an element type, written ``BFloat16`` or ``c10::BFloat16``; None if unknown."""
    short = name.lower().removeprefix("c10::")
    return 1 if short.startswith("float8_") else _ELEMENT_BYTES.get(short)


class _Messages(Interner[Message]):
    """Numbers each distinct message."""

    def __init__(self, shortened: Shortener) -> None:
        self._shortened = shortened

    def number_of(self, args: EventArgs) -> int:
        """Return the number of an event's message; NONE if it carries none."""
        message = self._recorded(args) or _of_inputs(args)
        return NONE if message is None else self[message]

    def _recorded(self, args: EventArgs) -> Message | None:
        """Return what ``record_param_comms`` or the profiler's own collective arguments say."""
        if not args.collective and args.message_elements == NONE:
            return None
        return Message(
            self._shortened(args.collective),
            _count(args.message_elements),
            _count(args.received_elements),
            self._shortened(args.message_type.lower()),
            element_bytes(args.message_type),
            _group_size(args),
            self._shortened(args.group),
        )


def _of_inputs(args: EventArgs) -> Message | None:
    """Return a message from the shapes and types of a range's inputs, as older profilers write them."""
    shapes, types = _decoded(args.input_dims), _decoded(args.input_types)
    if not isinstance(shapes, list) or not isinstance(types, list):
        return None
    names = {name for name in types if isinstance(name, str)}
    if len(names) != 1:
        return None
    (name,) = names
    is_tensor = element_bytes(name) is not None  # a tensor without dimensions holds one element
    counts = [1 if is_tensor and shape == [] else _elements(shape) for shape in shapes]
    if not counts or None in counts:
        return None
    elements = _count(sum(count or 0 for count in counts))
    short = name.lower().removeprefix("c10::")
    return None if elements is None else Message("", elements, None, short, element_bytes(name))


def _elements(shape: object) -> int | None:
    if not isinstance(shape, list) or not shape or not all(isinstance(size, int) and size >= 0 for size in shape):
        return None
    return prod(shape)


def _count(elements: int) -> int | None:
    return elements if 0 <= elements < _MOST_ELEMENTS else None


def _group_size(args: EventArgs) -> int | None:
    """Return the recorded size, else the length of the list of ranks if it is whole."""
    if 0 < args.group_size < _MOST_RANKS:
        return args.group_size
    ranks = _decoded(args.group_ranks)
    if isinstance(ranks, str):
        ranks = _decoded(ranks.encode())
    if not isinstance(ranks, list) or not ranks or not all(isinstance(rank, int) for rank in ranks):
        return None
    return len(ranks)


def _decoded(raw: msgspec.Raw | bytes) -> object:
    """Return a JSON value; None if there is none."""
    try:
        return msgspec.json.decode(raw) if raw else None
    except (ValueError, RecursionError):
        return None
