"""Scrubs a trace file as a stream: memory does not grow with the file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from traceadvisor.errors import InputError
from traceadvisor.hardware.profiler_names import TASK
from traceadvisor.model.events import Kind
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.columns.categories import is_known, kind_of
from traceadvisor.parsing.exceeded_limits import excess_notes
from traceadvisor.parsing.health import excesses
from traceadvisor.parsing.input_bytes import ByteStream, open_bytes
from traceadvisor.parsing.json.chunks import ChunkReader, ReadSummary
from traceadvisor.parsing.json.events import (
    MISSING,
    Event,
    EventArgs,
    InstantEvent,
    Key,
    MetadataArgs,
    MetadataEvent,
    TimedEvent,
)
from traceadvisor.parsing.metadata import FRAMEWORK, PLAIN_MEMBERS, framework
from traceadvisor.scrubbing.output import Writable
from traceadvisor.scrubbing.texts import Texts
from traceadvisor.text.cleaning import clean

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
_LONGEST_PLACE = 300
_VERSION = re.compile(r"[\d.]{1,20}")


def scrub_trace(
    path: Path,
    file: Writable,
    texts: Texts,
    limits: Limits = LIMITS,
    on_progress: Callable[[int], None] = lambda _: None,
) -> tuple[int, tuple[str, ...]]:
    """Write a scrubbed copy of a trace file. It holds what a report reads, and nothing else.

    A recording that is cut off stays so: reports on the copy say it, too.

    Args:
        path: the trace file, gzipped or not.
        file: the copy, not gzipped.
        texts: replaces texts.
        limits: how much to read.
        on_progress: called with the number of bytes of the file read so far.

    Returns:
        The number of events in the copy, and remarks on other things that it lacks.

    Raises:
        InputError: the file cannot be read or holds no events.
        OSError: the copy cannot be written.
    """
    scrubber = _EventScrubber(texts, limits.text_length)
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
        return events, _remarks(stream, summary, limits)


def learn_from(path: Path, texts: Texts, limits: Limits = LIMITS, most_bytes: float = math.inf) -> None:
    """Remember the hosts and users that a file names, wherever: names before them tell about the same ones.

    ``most_bytes``: of a larger file, the rest is not read.

    Raises:
        InputError: the file cannot be read.
    """
    texts.learn_trace(path.name)
    rest = b""
    with open_bytes(path, limits) as stream:
        for piece in stream.pieces():
            most_bytes -= len(piece)
            texts.learn_from((rest + piece).decode(errors="replace"))
            rest = (rest + piece)[-_LONGEST_PLACE:]
            if most_bytes <= 0:
                break


def _head(members: Mapping[str, Any]) -> bytes:
    begin = msgspec.json.encode(members)[:-1]
    return begin + (b"," if members else b"") + b'"traceEvents":[\n'


def _members(members: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    """The members that a report reads, without texts about people and machines."""
    kept: dict[str, Any] = {name: members[name] for name in PLAIN_MEMBERS if _is_version(members.get(name))}
    if known := framework(members):
        kept[FRAMEWORK] = known
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


_LARGEST = 1e300

_NUMBER = re.compile(rb'"? ?-?[0-9][0-9.eE+-]{0,400} ?"?')
_NUMBER_TEXT = re.compile(r" ?-?\d[\d.eE+-]{0,400} ?")
_PLAIN_KEY = re.compile(
    r"Spans|Traces|PyTorch Profiler|(?:(?:thread|stream|pid|tid|gpu|device) ?)?-?\d{1,40} ?", re.IGNORECASE
)
_TYPE = re.compile(r"[\w:<>,.()\[\]*&;\r\n -]{0,200}")
_VALUE = re.compile(
    r"|None|True|False|inf|nan|[-\d.eE+j]{1,40}|(?:cpu|cuda|hip|xpu|mps|meta|privateuseone)(?::\d{1,4})?|torch\.\w{1,30}"
    r"|\[[-\d.eE+, ]{0,2000}\]|\[(?:(?:None|True|False)(?:, )?){0,100}\]"
)
_PYTHON = re.compile(r"python[\d.]{0,8}")
_THREAD = re.compile(
    r"(?P<number>thread -?\d{1,20})?"
    r"(?P<known> ?\(?(?:python[\d.]{0,8}|(?:pt|nccl|cuda|tf)_?\w{0,20}|MainThread|stream [\d ]{1,24})\)?)?.*",
    re.DOTALL,
)
"""Names of threads that Python, PyTorch, CUDA and XLA give; programs may give others."""

_DEEPEST = 4
_UNKNOWN = "other"

_NUMBERS = frozenset({"byte_count", "own_rank", "peer_rank"})
"""Numbers that some profilers write as text."""

_TEXTS = _NUMBERS | {"call_stack", "call_from", "message_type", "collective", "group", "stream", "task_type"}
_RAWS = frozenset({"concrete_inputs", "input_types", "input_dims", "input_strides", "group_ranks"})
SCRUBBED_ARGUMENTS = _TEXTS | _RAWS
"""Arguments of events that may hold text; all others are numbers."""

_ABSENT = EventArgs()


class _EventScrubber:
    """Scrubs events in place."""

    def __init__(self, texts: Texts, longest_text: int = LIMITS.text_length) -> None:
        self._texts, self._longest = texts, longest_text
        self._text_arguments: dict[str, Callable[[str], str]] = {
            "call_stack": lambda text: texts.stack(text[:longest_text]),
            "call_from": lambda text: texts.line(text[:longest_text]),
            "message_type": lambda text: text if _is_type(text) else _UNKNOWN,
            "collective": lambda text: texts.name(text[:longest_text]),
            "group": lambda text: texts.name(text[:longest_text]),
            "stream": self._key_text,
            **dict.fromkeys(_NUMBERS, lambda text: text if _NUMBER_TEXT.fullmatch(text) else ""),
            "task_type": lambda text: text if _is_known(f"{TASK}{text}") else "",
        }

    def scrubbed(self, events: Sequence[Event]) -> list[Event]:
        """The same events, changed; those that only name processes or tell nothing are left out."""
        return [event for event in events if self._scrub(event)]

    def _scrub(self, event: Event) -> bool:
        """Change an event; returns whether to keep it."""
        if event.__class__ is TimedEvent:  # faster than isinstance
            self._scrub_timed(event)
        elif isinstance(event, InstantEvent):
            event.ts = _number(event.ts)
            event.pid, event.tid = self._key(event.pid), self._key(event.tid)
        elif isinstance(event, MetadataEvent):
            return self._scrub_name(event)
        else:
            return False
        return True

    def _scrub_timed(self, event: TimedEvent[Any]) -> None:
        event.ts = _number(event.ts)
        event.dur = min(event.dur, _LARGEST)
        event.pid, event.tid = self._key(event.pid), self._key(event.tid)
        if not event.cat or _is_known(event.cat):
            event.name = self._texts.name(event.name[: self._longest])
        else:
            event.cat, event.name = _UNKNOWN, ""
        if event.args is not _ABSENT:
            self._scrub_arguments(event.args)

    def _scrub_name(self, event: MetadataEvent) -> bool:
        """The name of a thread or process; returns whether it is one."""
        name = event.args.name
        if event.name not in {"thread_name", "process_name"} or name is None:
            return False
        event.pid, event.tid = self._key(event.pid), self._key(event.tid)
        if event.name == "process_name":
            name = name if _PYTHON.fullmatch(name) else "process"
        elif found := _THREAD.fullmatch(name[:100]):
            name = f"{found['number'] or ''}{found['known'] or ''}" or "thread"
        event.args = MetadataArgs(name)
        return True

    def _scrub_arguments(self, args: EventArgs) -> None:
        for name, scrubbed in self._text_arguments.items():
            value = getattr(args, name)
            if value.__class__ is str and value:
                msgspec.structs.force_setattr(args, name, scrubbed(value))
        for name, kept in _KEPT_VALUES.items():
            raw = getattr(args, name)
            if raw is not MISSING:
                msgspec.structs.force_setattr(args, name, msgspec.Raw(kept(bytes(raw))))

    def _key(self, key: Key) -> Key:
        return self._key_text(key) if isinstance(key, str) else key

    def _key_text(self, key: str) -> str:
        return key if _PLAIN_KEY.fullmatch(key) else self._texts.key(key[: self._longest])


@lru_cache(maxsize=1 << 10)
def _is_known(category: str) -> bool:
    return len(category) < 100 and (is_known(category) or kind_of(category, "PyTorch Profiler") is Kind.PROFILER_SPAN)


def _is_type(text: str) -> bool:
    return _TYPE.fullmatch(text) is not None and clean(text) == text


def _number(raw: msgspec.Raw) -> msgspec.Raw:
    """A number as it was written; null for everything else."""
    return raw if raw is MISSING or _NUMBER.fullmatch(raw) else msgspec.Raw(b"null")


def _only(is_plain: Callable[[str], object]) -> Callable[[bytes], bytes]:
    """Keeps numbers and plain texts in a JSON value; all other texts become empty ones."""

    def plain(value: object, depth: int) -> object:
        if isinstance(value, list):
            return [plain(each, depth + 1) for each in value] if depth < _DEEPEST else []
        if isinstance(value, str):
            return value if is_plain(value) else ""
        return value if isinstance(value, int | float) or value is None else ""

    @lru_cache(maxsize=1 << 11)
    def kept_short(raw: bytes) -> bytes:
        try:
            return msgspec.json.encode(plain(msgspec.json.decode(raw), 0))
        except (ValueError, RecursionError):
            return b"null"

    return lambda raw: kept_short(raw) if len(raw) < 2000 else kept_short.__wrapped__(raw)


_SHAPES = re.compile(r"[-\d, \[\];\r\n]{0,20000}")
_KEPT_VALUES = {
    "concrete_inputs": _only(_VALUE.fullmatch),
    "input_types": _only(_is_type),
    "input_dims": _only(_SHAPES.fullmatch),
    "input_strides": _only(_SHAPES.fullmatch),
    "group_ranks": _only(_SHAPES.fullmatch),
}
"""Allowed text in arguments that are JSON values."""
