"""Reading JSON with production's windows and, to compare, with the standard library."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

from traceadvisor.parsing.event_json import Event
from traceadvisor.parsing.input_bytes import ByteStream
from traceadvisor.parsing.windows import Members, WindowReader

Seen = tuple[object, ...]
"""What a reader made of an event."""


@dataclass(frozen=True)
class Reading:
    """The events of a file and what stands around them."""

    events: list[Seen]
    members: Members

    @property
    def names(self) -> list[object]:
        return [event[2] for event in self.events]


def read(content: bytes, window_bytes: int = 64) -> Reading:
    """With production's reader, through windows that hold less than an event to begin with."""
    reader = WindowReader(ByteStream(io.BytesIO(content)), window_bytes=window_bytes)
    events = [_seen(event) for window in reader.windows() for event in window]
    return Reading(events, reader.members)


def expected(content: bytes) -> list[Seen]:
    """With the standard library's reader, all at once."""
    document, texts = json.loads(content), json.loads(content, parse_float=str, parse_int=str)
    records = document if isinstance(document, list) else document["traceEvents"]
    texts = texts if isinstance(texts, list) else texts["traceEvents"]
    return [_record(record, text) for record, text in zip(records, texts, strict=True)]


def _seen(event: Event) -> Seen:
    args = event.args
    types = json.loads(bytes(args.input_types)) if bytes(args.input_types) else None
    return (
        event.ph,
        event.cat,
        event.name,
        event.pid,
        event.tid,
        bytes(event.ts).decode(),
        bytes(event.dur).decode(),
        args.correlation,
        args.stream,
        args.call_stack,
        types,
    )


def _record(record: dict[str, Any], text: dict[str, Any]) -> Seen:
    args = record.get("args", {})
    return (
        record.get("ph", ""),
        record.get("cat", ""),
        record.get("name", ""),
        record.get("pid"),
        record.get("tid"),
        text.get("ts", ""),
        text.get("dur", ""),
        args.get("correlation", -1),
        args.get("stream", -1),
        args.get("Call stack", ""),
        args.get("Input type"),
    )
