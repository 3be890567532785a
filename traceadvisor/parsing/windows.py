"""A trace file as a stream of decoded windows of events, with whatever stands around them.

The file is never held whole. From a known event start, a prefix that ends at a ``}`` followed by ``,`` and ``{`` ends
with a complete event if and only if ``[`` + prefix + ``]`` decodes; so boundaries are guessed from the right, decoded,
and moved left when the guess was inside a string or a nested list. Where that fails for another reason, the window is
decoded event by event, and what does not decode is repaired or left out, and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from traceadvisor.parsing.event_decoder import MALFORMED, EventDecoder
from traceadvisor.parsing.event_json import Event
from traceadvisor.parsing.input_bytes import ByteStream

WINDOW_BYTES = 1 << 20
LARGEST_WINDOW_BYTES = 1 << 28
"""A single event, or the members around ``traceEvents``, may not be larger."""

_BOUNDARY = re.compile(rb"\}\s*(,)\s*(?=\{)")
_SPACE = re.compile(r"[\s\ufeff\xef\xbb\xbf]*")
_NEXT_EVENT = rb"\}\s*(,)\s*(?=\{\s*\"(?:ph|name|cat|pid|tid|ts|dur|id|s|bp|args)\"\s*:)"
"""A boundary behind a malformed event: more than any ``}, {``, since nested lists may hold those."""

_NEXT_EVENT_IN_BYTES, _NEXT_EVENT_IN_TEXT = re.compile(_NEXT_EVENT), re.compile(_NEXT_EVENT.decode())
_LAST_EVENT_END = re.compile(r"\}\s*(\])")
_NEAR_END_BYTES = 1 << 15

_JSON = json.JSONDecoder(strict=False, parse_int=lambda digits: int(digits) if len(digits) < _MOST_DIGITS else None)
_MOST_DIGITS = 400
"""Of an integer in a member; longer ones are an attack on the time that reading them takes."""


@dataclass(slots=True)
class Members:
    """The members of the top-level object other than ``traceEvents``, and how the reading went."""

    values: dict[str, Any] = field(default_factory=dict)
    has_events: bool = False
    is_json: bool = True
    """Whether the file begins as JSON does."""

    truncated: bool = False
    dropped: int = 0
    """Events that did not decode."""

    repaired: int = 0
    """Events that were mended, and members of events that were set aside."""


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
        self._decoder = EventDecoder()
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
        self.members.dropped, self.members.repaired = self._decoder.dropped, self._decoder.repaired

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
            self.members.is_json = at >= len(text)
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
        comma = self._last_boundary(self._end)
        while comma is not None:
            try:
                return self._decode_until(comma)
            except _Unfinished:
                comma = self._last_boundary(comma)
            except MALFORMED:
                return self._decode_one_by_one(comma)
        return []

    def _decode_one_by_one(self, last: int) -> list[Event]:
        """Decode up to a boundary, event by event, and mend or leave out what is malformed."""
        events: list[Event] = []
        match = _BOUNDARY.search(self._buffer, self._start, self._end)
        while match and match.start(1) <= last:
            try:
                events += self._decode_until(match.start(1))
            except _Unfinished:
                match = _BOUNDARY.search(self._buffer, match.end(1), self._end)
                continue
            except MALFORMED:
                match = _NEXT_EVENT_IN_BYTES.search(self._buffer, self._start, self._end)
                if not match:
                    break
                events += self._decoder.mended(bytes(self._buffer[self._start : match.start(1)]))
                self._start = match.start(1) + 1
            match = _BOUNDARY.search(self._buffer, self._start, self._end)
        return events

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

    def _decode_until(self, comma: int) -> list[Event]:
        """The events before ``comma``; raises _Unfinished where the last of them goes on behind it."""
        self._buffer[self._start - 1 : self._start] = b"["
        self._buffer[comma : comma + 1] = b"]"
        try:
            events = self._decoder.events(memoryview(self._buffer)[self._start - 1 : comma + 1])
        except MALFORMED as error:
            self._buffer[comma : comma + 1] = b","
            if _goes_on(error):
                raise _Unfinished from error
            raise
        self._start = comma + 1
        return events

    # -- after the events ---------------------------------------------------------------------------------------

    def _read_tail(self) -> list[Event]:
        """The last events, one by one, then the members behind them."""
        text = self._text()
        events: list[Event] = []
        at = 0
        try:
            while not text.startswith("]", at := _skip_space(text, at)):
                if text.startswith(",", at):
                    at += 1
                    continue
                found, at = self._decode_event(text, at)
                events += found
            if not self._is_bare_array:
                self._scan_members(text, at + 1)
        except _Unfinished:
            self.members.truncated = True
        return events

    def _decode_event(self, text: str, at: int) -> tuple[list[Event], int]:
        """The event at an offset, none where it is beyond repair, and the offset behind it.

        Raises:
            _Unfinished: the file breaks off in it.
        """
        try:
            _, end = _decode(text, at)
        except _Unfinished:
            end = self._end_of_malformed(text, at)
        raw = text[at:end].encode("latin-1")
        with suppress(*MALFORMED):
            return self._decoder.events(b"[" + raw + b"]"), end
        return self._decoder.mended(raw), end

    def _end_of_malformed(self, text: str, at: int) -> int:
        """Where the next event or the end of the events follows."""
        try:
            msgspec.json.decode(text[at:].encode("latin-1"))
        except MALFORMED as error:
            if _goes_on(error):
                raise _Unfinished from error
        following = _NEXT_EVENT_IN_TEXT.search(text, at)
        if following:
            return following.start(1)
        for match in _LAST_EVENT_END.finditer(text, at):
            if self._are_members(text[match.end() :].strip()):
                return match.start(1)
        raise _Unfinished

    def _are_members(self, rest: str) -> bool:
        """Whether what follows a bracket can be what follows the events."""
        if self._is_bare_array:
            return not rest
        try:
            _, end = _decode("{" + rest.removeprefix(","), 0)
        except _Unfinished:
            return False
        return end == len("{" + rest.removeprefix(","))


def _goes_on(error: Exception) -> bool:
    """Whether the decoder merely ran out of bytes."""
    return str(error) == "Input data was truncated"


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _decode(text: str, at: int) -> tuple[Any, int]:
    """The JSON value at an offset and the offset behind it."""
    try:
        return _JSON.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise _Unfinished from error
