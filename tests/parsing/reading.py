"""Reading JSON with production's chunks and, to compare, with the standard library."""

import io
import json
from dataclasses import dataclass
from typing import Any

from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.input_bytes import ByteStream
from traceadvisor.parsing.json.chunks import ChunkReader, ReadSummary
from traceadvisor.parsing.json.events import TimedEvent

Seen = tuple[object, ...]
"""What a reader made of a timed event."""


@dataclass(frozen=True)
class Reading:
    """The timed events of a file and what stands around them."""

    events: list[Seen]
    summary: ReadSummary

    @property
    def names(self) -> list[object]:
        return [event[1] for event in self.events]


def read(content: bytes, chunk_bytes: int = 64, limits: Limits = LIMITS) -> Reading:
    """With production's reader, through chunks that hold less than an event to begin with."""
    reader = ChunkReader(ByteStream(io.BytesIO(content)), chunk_bytes=chunk_bytes, limits=limits)
    events = [_seen(event) for chunk in reader.chunks() for event in chunk if isinstance(event, TimedEvent)]
    return Reading(events, reader.summary)


def expected(content: bytes) -> list[Seen]:
    """With the standard library's reader, all at once."""
    document, texts = json.loads(content), json.loads(content, parse_float=str, parse_int=str)
    records = document if isinstance(document, list) else document["traceEvents"]
    texts = texts if isinstance(texts, list) else texts["traceEvents"]
    return [_record(record, text) for record, text in zip(records, texts, strict=True) if record["ph"] == "X"]


def _seen(event: TimedEvent[Any]) -> Seen:
    args = event.args
    types = json.loads(bytes(args.input_types)) if bytes(args.input_types) else None
    return (
        event.cat,
        event.name,
        event.pid,
        event.tid,
        bytes(event.ts).decode(),
        event.dur,
        args.correlation,
        args.stream,
        args.call_stack,
        types,
    )


def _record(record: dict[str, Any], text: dict[str, Any]) -> Seen:
    args = record.get("args", {})
    return (
        record.get("cat", ""),
        record.get("name", ""),
        record.get("pid"),
        record.get("tid"),
        text.get("ts", ""),
        float(text.get("dur", 0)),
        args.get("correlation", -1),
        args.get("stream", -1),
        args.get("Call stack", ""),
        args.get("Input type"),
    )
