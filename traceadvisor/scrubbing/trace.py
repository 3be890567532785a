"""Scrubs a trace file as a stream: memory does not grow with the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from traceadvisor.errors import InputError
from traceadvisor.frozen import frozen
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.exceeded_limits import excess_notes
from traceadvisor.parsing.health import excesses
from traceadvisor.parsing.input_bytes import ByteStream, open_bytes
from traceadvisor.parsing.json.chunks import ChunkReader, ReadSummary
from traceadvisor.parsing.metadata import PLAIN_MEMBERS
from traceadvisor.scrubbing.events import EventScrubber
from traceadvisor.scrubbing.output import Writable
from traceadvisor.scrubbing.texts import Texts

_OF_A_DEVICE = (
    "id",
    "name",
    "totalGlobalMem",
    "computeMajor",
    "computeMinor",
    "maxThreadsPerBlock",
    "maxThreadsPerMultiprocessor",
    "regsPerBlock",
    "regsPerMultiprocessor",
    "warpSize",
    "sharedMemPerBlock",
    "sharedMemPerMultiprocessor",
    "sharedMemPerBlockOptin",
    "numSms",
)
_OF_A_GROUP = ("backend", "rank", "world_size", "pg_count", "nccl_version")
MOST_DEVICES = 1024
_PIECE_BYTES, _LONGEST_PLACE = 1 << 20, 300
_VERSION = re.compile(r"[\d.]{1,20}")


@frozen
class ScrubbedTrace:
    """Result for a trace file."""

    events: int
    """Events in the copy."""

    remarks: tuple[str, ...]
    """Other things that the copy lacks."""


def scrub_trace(
    path: Path,
    file: Writable,
    texts: Texts,
    limits: Limits = LIMITS,
    on_progress: Callable[[int], None] = lambda _: None,
) -> ScrubbedTrace:
    """Write a scrubbed copy of a trace file. It holds what a report reads, and nothing else.

    A recording that is cut off stays so: reports on the copy say it, too.

    Args:
        path: the trace file, gzipped or not.
        file: the copy, not gzipped.
        texts: replaces texts.
        limits: how much to read.
        on_progress: called with the number of bytes of the file read so far.

    Raises:
        InputError: the file cannot be read or holds no events.
        OSError: the copy cannot be written.
    """
    scrubber = EventScrubber(texts, limits.text_length)
    encoder = msgspec.json.Encoder()
    events = 0
    with open_bytes(path, limits) as stream:
        reader = ChunkReader(stream, limits=limits)
        first: Mapping[str, Any] = {}
        for chunk in reader.chunks():
            if not events:
                first = _members(reader.summary.members, texts)
            if part := scrubber.scrubbed(chunk):
                file.write(b",\n" if events else _head(first))
                file.write(encoder.encode(part)[1:-1])
                events += len(part)
            on_progress(stream.file_position)
        summary = reader.summary
        if not events:
            raise _nothing(path)
        if not (summary.truncated or stream.ended_early):
            last = {key: one for key, one in _members(summary.members, texts).items() if key not in first}
            file.write(b"]" + (b"," + encoder.encode(last)[1:] if last else b"}") + b"\n")
        return ScrubbedTrace(events, _remarks(stream, summary, limits))


def learn_from(path: Path, texts: Texts, limits: Limits = LIMITS) -> None:
    """Remember the hosts and users that a file names, wherever: names before them tell about the same ones.

    Raises:
        InputError: the file cannot be read.
    """
    texts.learn_trace(path.name)
    buffer, rest = bytearray(_PIECE_BYTES), b""
    with open_bytes(path, limits) as stream:
        while count := stream.readinto(memoryview(buffer)):
            piece = rest + bytes(buffer[:count])
            texts.learn_from(piece.decode(errors="replace"))
            rest = piece[-_LONGEST_PLACE:]


def _head(members: Mapping[str, Any]) -> bytes:
    begin = msgspec.json.encode(members)[:-1]
    return begin + (b"," if members else b"") + b'"traceEvents":[\n'


def _members(members: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    """The members that a report reads, without texts about people and machines."""
    kept: dict[str, Any] = {name: members[name] for name in PLAIN_MEMBERS if _is_version(members.get(name))}
    described = members.get("deviceProperties")
    if isinstance(described, list):
        kept["deviceProperties"] = [
            _chosen(one, _OF_A_DEVICE, texts) for one in described[:MOST_DEVICES] if isinstance(one, dict)
        ]
    if isinstance(group := members.get("distributedInfo"), dict):
        kept["distributedInfo"] = _chosen(group, _OF_A_GROUP, texts)
    return kept


def _chosen(members: Mapping[str, Any], names: tuple[str, ...], texts: Texts) -> dict[str, Any]:
    found = ((name, members.get(name)) for name in names)
    return {
        name: texts.name(value[:200]) if isinstance(value, str) else value
        for name, value in found
        if isinstance(value, str) or _is_number(value)
    }


def _is_version(value: object) -> bool:
    return _is_number(value) or (isinstance(value, str) and _VERSION.fullmatch(value) is not None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _remarks(stream: ByteStream, summary: ReadSummary, limits: Limits) -> tuple[str, ...]:
    """Parts that the copy lacks, because they could not be read."""
    dropped = (f"{summary.dropped} damaged events were left out.",) if summary.dropped else ()
    cut = ("The recording is cut off; so is the copy.",) if summary.truncated or stream.ended_early else ()
    return (*dropped, *cut, *(note.message for note in excess_notes(excesses(stream, summary), limits)))


def _nothing(path: Path) -> InputError:
    return InputError(
        path,
        "holds no profiler events",
        expected="a torch.profiler recording or a capture",
        remedy="Pass a trace file (*.pt.trace.json, gzipped or not) or a folder written by `traceadvisor capture`.",
    )
