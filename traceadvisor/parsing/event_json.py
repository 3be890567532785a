"""The JSON of one event, typed: only what is needed is decoded, everything else is skipped by the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from traceadvisor.model.events import NONE

MISSING = msgspec.Raw(b"")
"""A member that the event lacks."""


class EventArgs(msgspec.Struct, frozen=True, gc=False):
    """The members of ``args`` that some question needs. Ids are opaque keys."""

    correlation: int = NONE
    external_id: int = msgspec.field(default=NONE, name="External id")
    external_id_2021: int = msgspec.field(default=NONE, name="external id")
    device: int = NONE
    stream: int | str = NONE
    byte_count: int | float | str = msgspec.field(default=NONE, name="bytes")
    blocks_per_sm: float | None = msgspec.field(default=None, name="blocks per SM")
    occupancy_percent: float | None = msgspec.field(default=None, name="est. achieved occupancy %")
    call_stack: str = msgspec.field(default="", name="Call stack")
    input_types: msgspec.Raw = msgspec.field(default=MISSING, name="Input type")
    name: str | None = None
    """Of a thread, in metadata events."""

    device_type: int = msgspec.field(default=NONE, name="Device Type")
    device_id: int = msgspec.field(default=NONE, name="Device Id")
    allocated_bytes: int = msgspec.field(default=NONE, name="Total Allocated")
    reserved_bytes: int = msgspec.field(default=NONE, name="Total Reserved")
    """Of the caching allocator, in memory events; those of 2021 have no totals."""


NO_ARGS = EventArgs()


class Event(msgspec.Struct, gc=False):
    """One member of ``traceEvents``."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | float | None = None
    tid: int | str | float | None = None
    ts: msgspec.Raw = MISSING
    dur: msgspec.Raw = MISSING
    args: EventArgs = NO_ARGS


class LooseEvent(msgspec.Struct, gc=False):
    """The same without types; times stay text, for a float would not hold them."""

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
        """Members set aside because nothing could be made of them."""

    def event(self, loose: LooseEvent) -> Event:
        """An event with every member that fits."""
        args = self._args(loose.args) if isinstance(loose.args, Mapping) else NO_ARGS
        return Event(
            _text(loose.ph),
            _text(loose.cat),
            _text(loose.name),
            _key(loose.pid),
            _key(loose.tid),
            loose.ts,
            loose.dur,
            args,
        )

    def _args(self, raw: Mapping[str, Any]) -> EventArgs:
        kept: dict[str, Any] = {}
        for field in msgspec.structs.fields(EventArgs):
            if raw.get(field.encode_name) is None or field.name == "input_types":
                continue
            try:
                kept[field.name] = msgspec.convert(raw[field.encode_name], field.type, strict=False)
            except msgspec.ValidationError:
                self.repaired += 1
        if "Input type" in raw:
            kept["input_types"] = msgspec.Raw(msgspec.json.encode(raw["Input type"]))
        return EventArgs(**kept)


def _key(value: object) -> int | str | float | None:
    return value if isinstance(value, int | str | float) else None


def _text(value: object) -> str:
    return "" if value is None else str(value)
