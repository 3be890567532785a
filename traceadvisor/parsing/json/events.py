"""Types of one event's JSON: only the needed members are decoded, the decoder skips the rest.

The phase (``ph``) selects the type: a complete event with a duration, an instant, metadata, or an event that is not
needed. What is encoded again holds no defaults: what an event lacked it still lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from hashlib import blake2b
from operator import or_
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from traceadvisor.model.events import NONE

MALFORMED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""Errors of decoding. No code reads the messages: they change between versions."""

MISSING = msgspec.Raw(b"")
"""A member that the event lacks."""

NAN = float("nan")


Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""An integer that is a key of a dictionary. Python hashes all multiples of 2**61 - 1 alike: of larger integers, a file
could hold so many that reading takes quadratic time."""


class KeyArgs(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The members of ``args`` that link a timed event to others. Ids are opaque keys."""

    correlation: int = NONE
    external_id: int = msgspec.field(default=NONE, name="External id")
    external_id_2021: int = msgspec.field(default=NONE, name="external id")
    device: Whole = NONE
    stream: Whole | str = NONE
    sequence: int = msgspec.field(default=NONE, name="Sequence number")
    """Links an operator of the forward pass to the node of the backward pass that autograd made for it."""

    record_id: int = msgspec.field(default=NONE, name="Record function id")
    task_type: str = msgspec.field(default="", name="Task Type")
    """Type of a device event without a category, as Ascend's profiler writes them."""

    connection: int = msgspec.field(default=NONE, name="connection_id")
    """Ascend's ``correlation``."""

    queued: int = msgspec.field(default=NONE, name="correlation_id")
    """Links the call that puts an operator into a task queue to the one that takes it out."""


class EventArgs(KeyArgs, frozen=True, gc=False, omit_defaults=True):
    """All members of ``args`` that some analysis needs."""

    byte_count: int | float | str = msgspec.field(default=NONE, name="bytes")
    blocks_per_sm: float = msgspec.field(default=NAN, name="blocks per SM")
    occupancy_percent: float = msgspec.field(default=NAN, name="est. achieved occupancy %")
    own_rank: int | float | str = msgspec.field(default=NONE, name="src rank")
    peer_rank: int | float | str = msgspec.field(default=NONE, name="dst rank")
    """The other rank of a step of a collective on an Ascend device; in a wait, the rank that it waits for."""

    call_stack: str = msgspec.field(default="", name="Call stack")
    call_from: str = msgspec.field(default="", name="CallFrom")
    """File and line of the call, in the frame around a Python call: ``train.py:12``. Torch writes it since 2.14."""

    concrete_inputs: msgspec.Raw = msgspec.field(default=MISSING, name="Concrete Inputs")
    input_types: msgspec.Raw = msgspec.field(default=MISSING, name="Input type")
    input_dims: msgspec.Raw = msgspec.field(default=MISSING, name="Input Dims")
    input_strides: msgspec.Raw = msgspec.field(default=MISSING, name="Input Strides")
    forward_thread: int = msgspec.field(default=NONE, name="Fwd thread id")
    """Torch's number of the forward operator's thread, in a backward operator; 0 in a forward one."""

    message_elements: int = msgspec.field(default=NONE, name="In msg nelems")
    message_type: str = msgspec.field(default="", name="dtype")
    """Element type of a collective's message."""

    received_elements: int = msgspec.field(default=NONE, name="Out msg nelems")
    collective: str = msgspec.field(default="", name="Collective name")
    group_size: int = msgspec.field(default=NONE, name="Group size")
    group_ranks: msgspec.Raw = msgspec.field(default=MISSING, name="Process Group Ranks")
    group: str = msgspec.field(default="", name="Process Group Description")


class InstantArgs(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Bytes that the caching allocator gave, took back and holds, in memory events; those of 2021 have no totals."""

    changed_bytes: int = msgspec.field(default=0, name="Bytes")
    """Negative where memory was freed."""

    address: int = msgspec.field(default=NONE, name="Addr")
    device_type: int = msgspec.field(default=NONE, name="Device Type")
    device_id: int = msgspec.field(default=NONE, name="Device Id")
    allocated_bytes: int = msgspec.field(default=NONE, name="Total Allocated")
    reserved_bytes: int = msgspec.field(default=NONE, name="Total Reserved")


class MetadataArgs(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The arguments of a metadata event."""

    name: str | None = None
    """The thread's name."""

    labels: str | None = None
    """Label of a process, such as ``CPU`` or ``GPU 0``."""


Key = Whole | str | float | None
"""A process or thread id; vendors use numbers and texts."""


Args = TypeVar("Args", bound=KeyArgs)


class TimedEvent(msgspec.Struct, Generic[Args], gc=False, tag_field="ph", tag="X", omit_defaults=True):
    """An event with a duration."""

    cat: str = ""
    name: str = ""
    pid: Key = None
    tid: Key = None
    ts: msgspec.Raw = MISSING
    """Microseconds as text: a double cannot hold times since 1970 to the nanosecond."""

    dur: float = 0.0
    """Microseconds; a double holds a hundred days to the nanosecond."""

    args: Args = EventArgs()  # type: ignore[assignment]  # it has all members of any


class InstantEvent(msgspec.Struct, gc=False, tag_field="ph", tag="i", omit_defaults=True):
    """An event without a duration."""

    pid: Key = None
    tid: Key = None
    ts: msgspec.Raw = MISSING
    args: InstantArgs = InstantArgs()


class MetadataEvent(msgspec.Struct, gc=False, tag_field="ph", tag="M", omit_defaults=True):
    """The name of a process or thread."""

    name: str = ""
    pid: Key = None
    tid: Key = None
    args: MetadataArgs = MetadataArgs()


class CounterEvent(msgspec.Struct, gc=False, tag_field="ph", tag="C", omit_defaults=True):
    """A sample of a counter, without its value."""

    cat: str = ""
    name: str = ""
    pid: Key = None


_OTHER_PHASES = "BEIbneSTpFsftPNODVvRc(),"
_OTHER_EVENTS = tuple(
    msgspec.defstruct(f"Phase{ord(phase)}", [], tag_field="ph", tag=phase, gc=False) for phase in _OTHER_PHASES
)
"""Flows and similar events, which are not needed."""

Event = TimedEvent[KeyArgs] | InstantEvent | MetadataEvent | CounterEvent
DETAILED_EVENT: Any = reduce(or_, _OTHER_EVENTS, TimedEvent[EventArgs] | InstantEvent | MetadataEvent | CounterEvent)
"""The type of an element of ``traceEvents``, selected by its phase."""

_NO_INSTANT = msgspec.defstruct("PhaseInstant", [], tag_field="ph", tag="i", gc=False)
BRIEF_EVENT: Any = reduce(or_, _OTHER_EVENTS, TimedEvent[KeyArgs] | _NO_INSTANT | MetadataEvent | CounterEvent)
"""The same without details."""


class LooseEvent(msgspec.Struct, gc=False):
    """The same without types; times stay text because a float would round them."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = MISSING
    dur: msgspec.Raw = MISSING
    args: Any = None


class Lenient:
    """Reads an event whose members have unexpected types, member by member."""

    def __init__(self) -> None:
        self.repaired = 0
        """Members that were ignored because they could not be converted."""

    def event(self, loose: LooseEvent) -> Event | None:
        """Return an event with every member that fits; None for phases that are not needed."""
        match loose.ph:
            case "X":
                return TimedEvent(
                    _text(loose.cat),
                    _text(loose.name),
                    _key(loose.pid),
                    _key(loose.tid),
                    loose.ts,
                    _microseconds(bytes(loose.dur)),
                    self._timed_args(loose.args),
                )
            case "i":
                args = InstantArgs(**self._fitting(loose.args, InstantArgs))
                return InstantEvent(_key(loose.pid), _key(loose.tid), loose.ts, args)
            case "M":
                named = MetadataArgs(**self._fitting(loose.args, MetadataArgs))
                return MetadataEvent(_text(loose.name), _key(loose.pid), _key(loose.tid), named)
            case "C":
                return CounterEvent(_text(loose.cat), _text(loose.name), _key(loose.pid))
        return None

    def _timed_args(self, raw: object) -> EventArgs:
        kept = self._fitting(raw, EventArgs)
        if isinstance(raw, Mapping):
            for field in _fields(EventArgs):
                if field.type is msgspec.Raw and field.encode_name in raw:
                    kept[field.name] = msgspec.Raw(msgspec.json.encode(raw[field.encode_name]))
        return EventArgs(**kept)

    def _fitting(self, raw: object, kind: type[msgspec.Struct]) -> dict[str, Any]:
        """Return the members that have, or convert to, the expected type."""
        kept: dict[str, Any] = {}
        if not isinstance(raw, Mapping):
            return kept
        for field in _fields(kind):
            if raw.get(field.encode_name) is None or field.type is msgspec.Raw:
                continue
            value = raw[field.encode_name]
            if field.name in _KEY_MEMBERS:
                value = _bounded(value)
            try:
                kept[field.name] = msgspec.convert(value, field.type, strict=False)
            except msgspec.ValidationError:
                self.repaired += 1
        return kept


_KEY_MEMBERS = frozenset({"device", "stream"})


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return a type's fields, cached: computing them takes longer than reading an event."""
    return msgspec.structs.fields(kind)


def _key(value: object) -> Key:
    return _bounded(value) if isinstance(value, int | str | float) else None


def _bounded(value: Any) -> Any:
    """The same key; another integer for one beyond 64 bits, different for different ones."""
    if not isinstance(value, int) or value.bit_length() <= 63:
        return value
    return 1 << 61 | int.from_bytes(blake2b(hex(value).encode(), digest_size=7).digest())


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _microseconds(raw: bytes) -> float:
    """Return a duration, also from text; NaN if it is not a number."""
    try:
        return float(raw.decode("ascii").strip('" ')) if raw else 0.0
    except ValueError:
        return NAN
