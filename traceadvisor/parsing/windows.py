"""A trace file as a stream of decoded windows of events, with whatever stands around them.

The file is never held whole. From a known event start, a prefix that ends at a ``}`` followed by ``,`` and ``{`` ends
with a complete event if and only if ``[`` + prefix + ``]`` decodes; so boundaries are guessed from the right, decoded,
and moved left when the guess was inside a string or a nested list. What does not decode is left out and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from traceadvisor.parsing.event_json import Event, Lenient
from traceadvisor.parsing.input_bytes import ByteStream

WINDOW_BYTES = 1 << 20
LARGEST_WINDOW_BYTES = 1 << 28
"""A single event, or the members around ``traceEvents``, may not be larger."""

_BOUNDARY = re.compile(rb"\}\s*(,)\s*(?=\{)")
_SPACE = re.compile(r"[\s\ufeff\xef\xbb\xbf]*")
_MALFORMED_AT = re.compile(r"\(byte (\d+)\)")
_NEAR_END_BYTES = 1 << 15

_TYPED = msgspec.json.Decoder(list[Event])
_UNTYPED = msgspec.json.Decoder(list[dict[str, Any]])
_JSON = json.JSONDecoder(strict=False)


@dataclass(slots=True)
class Members:
    """The members of the top-level object other than ``traceEvents``, and how the reading went."""

    values: dict[str, Any] = field(default_factory=dict)
    has_events: bool = False
    truncated: bool = False
    dropped: int = 0
    """Events that did not decode."""

    repaired: int = 0
    """Members of events that were set aside."""


class _Unfinished(Exception):  # noqa: N818  # a signal between the functions here, not an error
    """The JSON goes on beyond the bytes at hand."""


class WindowReader:
    """Reads one file; :meth:`windows` yields lists of events, :attr:`members` holds the rest once it is exhausted."""

    def __init__(self, stream: ByteStream, *, window_bytes: int = WINDOW_BYTES) -> None:
        self._stream = stream
        self._buffer = bytearray(window_bytes)
        self._start = 0
        self._end = 0
        self._at_end = False
        self._is_bare_array = False
        self._lenient = Lenient()
        self.members = Members()

    def windows(self) -> Iterator[list[Event]]:
        """The events, a window at a time. The raw members of an event are valid until the next window is asked for."""
        if not self._read_head():
            return
        self.members.has_events = True
        while not self._at_end:
            events = self._decode_window()
            if events:
                yield events
            self._refill()
        while events := self._decode_window():
            yield events
        yield self._read_tail()
        self.members.repaired = self._lenient.repaired

    # -- buffer -------------------------------------------------------------------------------------------------

    def _refill(self) -> None:
        """Move what is left to the front, behind one spare byte, and read on; a full buffer grows."""
        rest = self._buffer[self._start : self._end]
        if len(rest) + 1 >= len(self._buffer) // 2:
            self._buffer = bytearray(2 * len(self._buffer))
        self._buffer[1 : 1 + len(rest)] = rest
        self._start, self._end = 1, 1 + len(rest)
        with memoryview(self._buffer) as view:
            count = self._stream.readinto(view[self._end :])
        self._at_end = self._end + count < len(self._buffer) or len(self._buffer) >= LARGEST_WINDOW_BYTES
        self._end += count

    def _text(self) -> str:
        """The bytes at hand, one character a byte: structure is ASCII, so offsets stay true."""
        return self._buffer[self._start : self._end].decode("latin-1")

    # -- before the events --------------------------------------------------------------------------------------

    def _read_head(self) -> bool:
        """Go to the first event, keeping the members before it; False where there are no events."""
        while True:
            self._refill()
            try:
                return self._scan_head()
            except _Unfinished:
                if self._at_end:
                    self.members.truncated = True
                    return False

    def _scan_head(self) -> bool:
        text = self._text()
        at = _skip_space(text, 0)
        if text.startswith("[", at):
            self._is_bare_array = True
            self._start += at + 1
            return True
        if not text.startswith("{", at):
            return False
        return self._scan_members(text, at + 1)

    def _scan_members(self, text: str, at: int) -> bool:
        """Read members until ``traceEvents``; True when the first event is next, False at the object's end."""
        while True:
            at = _skip_space(text, at)
            if at >= len(text):
                raise _Unfinished
            if text[at] == "}":
                return False
            if text[at] == ",":
                at += 1
                continue
            key, at = _decode(text, at)
            at = _skip_space(text, at)
            if not text.startswith(":", at):
                raise _Unfinished
            at = _skip_space(text, at + 1)
            if key == "traceEvents" and text.startswith("[", at):
                self._start += at + 1
                return True
            _, end = _decode(text, at)
            self.members.values[str(key)] = _JSON.decode(text[at:end].encode("latin-1").decode("utf-8", "replace"))
            at = end

    # -- the events ---------------------------------------------------------------------------------------------

    def _decode_window(self) -> list[Event]:
        """Decode up to the last boundary that holds, and stand behind it; empty where none does."""
        until = self._end
        while until > self._start:
            comma = self._last_boundary(until)
            if comma is None:
                return []
            events, malformed_at = self._try_decode(comma)
            if events is not None:
                return events
            if malformed_at is None:
                until = comma
            elif self._has_boundary_before(malformed_at):
                until = malformed_at
            else:
                self._skip_event(malformed_at)
                until = self._end
        return []

    def _last_boundary(self, until: int) -> int | None:
        """Offset of the comma of the last ``}, {`` that lies before ``until``."""
        near = max(self._start, until - _NEAR_END_BYTES)
        while True:
            last = None
            for match in _BOUNDARY.finditer(self._buffer, near, until):
                last = match.start(1)
            if last is not None or near == self._start:
                return last
            near = max(self._start, near - 4 * (until - near))

    def _has_boundary_before(self, offset: int) -> bool:
        return _BOUNDARY.search(self._buffer, self._start, offset) is not None

    def _try_decode(self, comma: int) -> tuple[list[Event] | None, int | None]:
        """The events before ``comma``, or the offset at which the JSON is malformed (None where it merely goes on)."""
        self._buffer[self._start - 1 : self._start] = b"["
        self._buffer[comma : comma + 1] = b"]"
        prefix = memoryview(self._buffer)[self._start - 1 : comma + 1]
        try:
            events = self._decode_events(prefix)
        except (msgspec.DecodeError, RecursionError) as error:
            self._buffer[comma : comma + 1] = b","
            found = _MALFORMED_AT.search(str(error))
            return None, self._start - 1 + int(found[1]) if found else None
        self._start = comma + 1
        return events, None

    def _decode_events(self, array: memoryview) -> list[Event]:
        try:
            return _TYPED.decode(array)
        except msgspec.ValidationError:
            return [self._lenient.event(raw) for raw in _UNTYPED.decode(array)]

    def _skip_event(self, malformed_at: int) -> None:
        """Leave out the event at hand, whose JSON is malformed, up to the next boundary."""
        match = _BOUNDARY.search(self._buffer, malformed_at, self._end)
        self.members.dropped += 1
        self._start = match.start(1) + 1 if match else self._end

    # -- after the events ---------------------------------------------------------------------------------------

    def _read_tail(self) -> list[Event]:
        """The last events, one by one, then the members behind them."""
        text = self._text()
        events: list[Event] = []
        at = 0
        try:
            while True:
                at = _skip_space(text, at)
                if text.startswith(",", at):
                    at += 1
                elif text.startswith("]", at):
                    if not self._is_bare_array:
                        self._scan_members(text, at + 1)
                    break
                else:
                    _, end = _decode(text, at)
                    raw = text[at:end].encode("latin-1")
                    events += self._decode_events(memoryview(b"[" + raw + b"]"))
                    at = end
        except (_Unfinished, msgspec.DecodeError):
            self.members.truncated = True
        return events


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _decode(text: str, at: int) -> tuple[Any, int]:
    """The JSON value at an offset and the offset behind it."""
    try:
        return _JSON.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise _Unfinished from error
