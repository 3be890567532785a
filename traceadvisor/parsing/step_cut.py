"""Cuts one step out of a trace file, without secrets, for a viewer such as Perfetto."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from traceadvisor.errors import InputError
from traceadvisor.frozen import frozen
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.input_bytes import open_bytes
from traceadvisor.parsing.metadata import FRAMEWORK, PLAIN_MEMBERS
from traceadvisor.text.cleaning import clean

MOST_BYTES = 2 << 30
"""Largest file after decompression: all of it is held in memory."""

MOST_DIGITS = 30
"""Most digits of a time before the decimal point."""

DEEPEST = 100
"""Nesting that is kept; torch nests up to five."""

_KEPT_MEMBERS = (*PLAIN_MEMBERS, FRAMEWORK, "deviceProperties", "distributedInfo", "displayTimeUnit")
"""Members beside the events that a reader needs. Others may hold anything."""

_MARK = re.compile(r"ProfilerStep#(\d{1,18})\Z")
_ON_DEVICE = re.compile(r"kernel|gpu_|async_")
_EXPECTED = "a whole recording of torch.profiler with step marks"

_Event = dict[str, Any]


@frozen
class _Span:
    start: Decimal
    end: Decimal

    def meets(self, event: _Event) -> bool:
        start = _time(event)
        return start < self.end and start + _number(event.get("dur")) > self.start


class StepCutter:
    """A trace file to cut steps out of. It is held in memory."""

    def __init__(self, path: Path, limits: Limits = LIMITS) -> None:
        """Read the file.

        Raises:
            InputError: it cannot be read, is damaged or too large.
        """
        self._path, self._depth = path, min(limits.nesting_depth, DEEPEST)
        self._members = _read(path, limits)
        found = self._members.pop("traceEvents", ())
        self._events = [event for event in found if isinstance(event, dict)] if isinstance(found, list) else []
        self._marks = {
            int(match[1]): event
            for event in self._events
            if (match := _mark(event)) is not None and not _is_on_device(event)
        }

    def cut(self, number: int, neighbours: int = 0) -> bytes:
        """Return a gzipped trace file of one step: its events, those that they launched, and no others.

        Every string is redacted as in reports. Costs a pass over the events.

        ``number``: the step's number in its mark, ``ProfilerStep#number``. ``neighbours``: steps before and after it to
        keep as well.

        Raises:
            InputError: there is no such mark.
        """
        if number not in self._marks:
            found = f"has no mark of step {number}"
            raise InputError(self._path, found, expected=_EXPECTED, remedy="Keep the whole recording.")
        kept = {near: mark for near, mark in self._marks.items() if abs(near - number) <= neighbours}
        span = _Span(min(map(_time, kept.values())), max(map(_end, kept.values())))
        members = {key: value for key in _KEPT_MEMBERS if (value := self._members.get(key)) is not None}
        document = _scrubbed(members | {"traceEvents": list(_chosen(self._events, span, kept))}, self._depth)
        return gzip.compress(msgspec.json.Encoder(decimal_format="number").encode(document), mtime=0)


def _read(path: Path, limits: Limits) -> dict[str, Any]:
    text = bytearray()
    with open_bytes(path, limits) as stream:
        for piece in stream.pieces():
            text += piece
            if len(text) > MOST_BYTES:
                raise InputError(
                    path,
                    f"is larger than {MOST_BYTES >> 30} GiB after decompression",
                    expected=_EXPECTED,
                    remedy="Record fewer steps.",
                )
    try:
        document = msgspec.json.Decoder(float_hook=Decimal).decode(text)
    except (ValueError, RecursionError) as error:  # also for bytes that are not UTF-8
        raise InputError(
            path, "is damaged, so no step can be cut out of it", expected=_EXPECTED, remedy="Copy the file again."
        ) from error
    return document if isinstance(document, dict) else {"traceEvents": document}


def _chosen(events: list[_Event], span: _Span, marks: dict[int, _Event]) -> Iterator[_Event]:
    """The events of the span, the device work launched in it, and the calls that launched work in it."""
    launched = {
        correlation
        for event in events
        if event.get("ph") == "X" and (correlation := _correlation(event)) is not None and span.meets(event)
    }
    kept_marks = {id(mark) for mark in marks.values()}
    for event in events:
        match event.get("ph"):
            case "M":
                yield event
            case "X" if (match := _mark(event)) is not None:
                if id(event) in kept_marks or (_is_on_device(event) and int(match[1]) in marks):
                    yield event
            case "X" if span.meets(event) or _correlation(event) in launched:
                yield event
            case "s" | "t" | "f" if event.get("id") in launched:
                yield event
            case "i" | "C" if span.start <= _time(event) <= span.end:
                yield event


def _mark(event: _Event) -> re.Match[str] | None:
    name = event.get("name")
    return _MARK.match(name) if isinstance(name, str) and event.get("ph") == "X" else None


def _is_on_device(event: _Event) -> bool:
    category = event.get("cat")
    return isinstance(category, str) and _ON_DEVICE.match(category.lower()) is not None


def _correlation(event: _Event) -> int | None:
    arguments = event.get("args")
    found = arguments.get("correlation") if isinstance(arguments, dict) else None
    return found if isinstance(found, int) and found > 0 else None


def _time(event: _Event) -> Decimal:
    return _number(event.get("ts"))


def _end(event: _Event) -> Decimal:
    return _time(event) + _number(event.get("dur"))


def _number(value: object) -> Decimal:
    """The number; 0 for one that is no possible time, such as NaN or 1e999999999."""
    try:
        number = Decimal(value) if isinstance(value, (int, str, Decimal)) else Decimal(0)
    except ArithmeticError:
        return Decimal(0)
    return number if number.is_finite() and number.adjusted() < MOST_DIGITS else Decimal(0)


_clean = lru_cache(maxsize=1 << 14)(clean)


def _scrubbed(value: Any, depth: int) -> Any:
    """The same structure with every string redacted; null for what is nested too deep."""
    match value:
        case str():
            return _clean(value)
        case dict() | list() if not depth:
            return None
        case dict():
            return {_clean(key): _scrubbed(each, depth - 1) for key, each in value.items()}
        case list():
            return [_scrubbed(each, depth - 1) for each in value]
        case _:
            return value
