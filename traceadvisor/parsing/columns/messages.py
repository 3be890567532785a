"""Arguments of collectives, from the events that carry them."""

from __future__ import annotations

from math import prod

import msgspec

from traceadvisor.model.communication import Message
from traceadvisor.model.events import NONE
from traceadvisor.parsing.columns.interning import Interner, Shortener
from traceadvisor.parsing.json.events import EventArgs

MOST_ELEMENTS = 1 << 48
"""Largest plausible message; larger ones, negative ones and other values count as not recorded."""

MOST_RANKS = 1 << 24
"""Largest plausible group."""

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


class Messages(Interner[Message]):
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
    counts = [_elements(shape) for shape in shapes]
    if not counts or None in counts or len(names) != 1:
        return None
    (name,) = names
    elements = _count(sum(count or 0 for count in counts))
    short = name.lower().removeprefix("c10::")
    return None if elements is None else Message("", elements, None, short, element_bytes(name))


def _elements(shape: object) -> int | None:
    if not isinstance(shape, list) or not shape or not all(isinstance(size, int) and size >= 0 for size in shape):
        return None
    return prod(shape)


def _count(elements: int) -> int | None:
    return elements if 0 <= elements < MOST_ELEMENTS else None


def _group_size(args: EventArgs) -> int | None:
    """Return the recorded size, else the length of the list of ranks if it is whole."""
    if 0 < args.group_size < MOST_RANKS:
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
    except (msgspec.DecodeError, RecursionError):
        return None
