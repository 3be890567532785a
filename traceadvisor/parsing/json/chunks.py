"""Read a trace file as a stream of chunks of decoded events, and the metadata around them.

The file is never held whole. A prefix that starts with an event and ends before a ``}, {`` ends with a complete event
if and only if ``[`` + prefix + ``]`` decodes. So the reader takes the last ``}, {`` of a chunk for the end of an event
and decodes everything before it at once. Where that fails, an event is malformed, or the guess lies inside a string or
a nested list. Then the reader decodes one event after another up to the malformed one, which it repairs or leaves out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.exceeded_limits import ExceededLimit
from traceadvisor.parsing.input_bytes import ByteStream
from traceadvisor.parsing.json.decoder import EventDecoder
from traceadvisor.parsing.json.events import MALFORMED, Event
from traceadvisor.parsing.json.structure import NextEvent, begins_like_json, ends_before_member, last_boundary
from traceadvisor.parsing.json.values import Malformed, Unfinished, ValueReader, skip_space

CHUNK_BYTES = 1 << 19
"""The decoded events of a chunk fit a processor's cache."""

_LAST_EVENT_END = re.compile(r"\}\s*(\])")
_BEGIN_CHARACTERS = 1 << 9
_LONGEST_BOUNDARY_BYTES = 1 << 10
_MOST_ENDS = 100
"""Brackets that are tried as the end of the events if the last event is malformed."""


@dataclass(slots=True)
class ReadSummary:
    """The metadata around a file's events, and how reading went."""

    members: dict[str, Any] = field(default_factory=dict)
    """Members of the top-level object other than ``traceEvents``."""

    has_events: bool = False
    is_json: bool = True
    """Whether the file begins as JSON does."""

    truncated: bool = False
    dropped: int = 0
    """Events that did not decode."""

    repaired: int = 0
    """Repaired events, and event members that were ignored."""

    excesses: Counter[ExceededLimit] = field(default_factory=Counter)
    """Amounts that were left out, by exceeded limit."""


class ChunkReader:
    """Reads one file: :meth:`chunks` yields lists of events; after that :attr:`summary` is complete."""

    def __init__(
        self, stream: ByteStream, *, chunk_bytes: int = CHUNK_BYTES, limits: Limits = LIMITS, details: bool = True
    ) -> None:
        self._stream, self._limits = stream, limits
        self._buffer = bytearray(chunk_bytes)
        self._start = self._end = 0
        self._at_end = self._is_bare_array = self._in_object = self._events_ended = False
        self._is_sound = True
        self.summary = ReadSummary()
        self._decoder = EventDecoder(limits, self.summary.excesses, details=details)
        self._json = ValueReader(limits, self.summary.excesses)
        self._next_event = NextEvent()

    def chunks(self) -> Iterator[list[Event]]:
        """Yield the events of one chunk at a time. An event's raw members are valid until the next chunk."""
        if not self._begun():
            return
        while not self._at_end:
            if events := self._decode_chunk():
                yield events
                events = []  # so that the next ones take their place in memory
            elif self._is_giant() and self._events_ended:
                self.summary.excesses[ExceededLimit.EVENT] += 1
                break
            elif self._is_giant():
                yield self._first_event()
            self._refill()
        while events := self._decode_chunk():
            yield events
        yield self._read_tail()
        self.summary.dropped += self._decoder.dropped
        self.summary.repaired += self._decoder.repaired

    # -- a file in two parts -----------------------------------------------------------------------------------

    @property
    def place(self) -> int | None:
        """Bytes read up to the next event; None if an event was malformed or left out, which the summary counts."""
        is_whole = self._is_sound and not self._decoder.dropped and not self.summary.excesses.total()
        return self._stream.delivered - (self._end - self._start) if is_whole else None

    def end_with(self, rest: ReadSummary) -> None:
        """Take over the summary of another reader, which skipped what this one read and read what follows."""
        self.summary = replace(rest, repaired=rest.repaired + self._decoder.repaired)

    def skip(self, file_position: int) -> int | None:
        """Skip as many chunks as :meth:`chunks` yields until so many bytes of the file itself have been read.

        Returns:
            The place after them; None if no chunk is left, or if they cannot be told without decoding.
        """
        if not self._begun():
            return None
        while not self._at_end:
            last = last_boundary(self._buffer, self._start, self._end)
            if last is None or last < self._start:
                return None
            self._start = last + 1
            place, is_done = self.place, self._stream.file_position >= file_position
            self._refill()
            if is_done:
                return place
        return None

    def _begun(self) -> bool:
        """Go to the first event unless that was done; False if there are no events."""
        self.summary.has_events = self.summary.has_events or self._read_head()
        return self.summary.has_events

    # -- buffer -------------------------------------------------------------------------------------------------

    def _refill(self) -> None:
        """Move unread bytes to the front, after one spare byte, and fill the buffer; a full buffer grows."""
        rest = self._buffer[self._start : self._end]
        if len(rest) + 1 >= len(self._buffer) // 2:
            self._buffer = bytearray(2 * len(self._buffer))
        self._buffer[1 : 1 + len(rest)] = rest
        self._start, self._end = 1, 1 + len(rest)
        with memoryview(self._buffer) as view:
            count = self._stream.readinto(view[self._end :])
        self._at_end = self._end + count < len(self._buffer)
        self._end += count

    def _is_giant(self) -> bool:
        """Whether the buffer holds more than the largest allowed event."""
        return self._end - self._start > self._limits.event_bytes

    def _text(self) -> str:
        """Return the buffered bytes as Latin-1 text: one character per byte, so offsets stay valid."""
        return self._buffer[self._start : self._end].decode("latin-1")

    # -- before the events --------------------------------------------------------------------------------------

    def _read_head(self) -> bool:
        """Go to the first event, keeping the members before it; False if there are no events."""
        while True:
            self._refill()
            try:
                return self._scan_head()
            except Unfinished:
                if self._is_giant():
                    self.summary.excesses[ExceededLimit.EVENT] += 1
                elif not self._at_end:
                    continue
                self.summary.truncated = True
                return False

    def _scan_head(self) -> bool:
        text = self._text()
        if not self._in_object:
            at = skip_space(text, 0)
            if at >= len(text):
                raise Unfinished
            self._is_bare_array = text[at] == "["
            self.summary.is_json = begins_like_json(text[:_BEGIN_CHARACTERS])
            self._in_object = text[at] == "{"
            text = text[at + 1 :]
            self._start += at + 1
        return self._scan_members(text, 0) if self._in_object else self._is_bare_array

    def _scan_members(self, text: str, at: int) -> bool:
        """Read members up to ``traceEvents``; True if the first event is next, False at the object's end."""
        begin = self._start
        while True:
            at = skip_space(text, at)
            if at >= len(text):
                raise Unfinished
            if text[at] == "}":
                return False
            if text[at] == ",":
                at += 1
                continue
            key, at = self._json.key_at(text, at)
            at = skip_space(text, at)
            if not text.startswith(":", at):
                raise Unfinished
            at = skip_space(text, at + 1)
            if key == "traceEvents" and text.startswith("[", at):
                self._start = begin + at + 1
                return True
            at = self._json.keep_member(self.summary.members, key, text, at)
            self._start = begin + at

    # -- the events ---------------------------------------------------------------------------------------------

    def _decode_chunk(self) -> list[Event]:
        """Decode the complete events of the chunk; empty if there are none."""
        events: list[Event] = []
        last = last_boundary(self._buffer, self._start, self._end)
        base, text = self._start, ""
        while last is not None and last >= self._start and not self._events_ended:
            begun = self._start
            try:
                return events + self._decode_until(last)
            except MALFORMED:
                self._is_sound = False
                text = text or self._text()
                events += self._decode_one_by_one(text, base)
            if self._start == begun:
                break
        return events

    def _decode_until(self, comma: int) -> list[Event]:
        """Return the events before a comma; raise one of MALFORMED if they are malformed or the last continues."""
        self._buffer[self._start - 1 : self._start] = b"["
        self._buffer[comma : comma + 1] = b"]"
        try:
            events = self._decoder.events(memoryview(self._buffer)[self._start - 1 : comma + 1])
        finally:
            self._buffer[comma : comma + 1] = b","
        self._start = comma + 1
        return events

    def _decode_one_by_one(self, text: str, base: int) -> list[Event]:
        """Return the buffered events up to the first malformed one, which is included if it can be repaired.

        ``text``: the bytes of the buffer from ``base`` on, as :meth:`_text` gives them. ``base``: an offset in the
        buffer.
        """
        self._next_event.learn(self._buffer, self._start)
        events: list[Event] = []
        at, is_sound = self._start - base, True
        with suppress(Unfinished):
            while is_sound and (at := skip_space(text, at)) < len(text):
                if text[at] == "]" and not self._is_bare_array and ends_before_member(self._buffer, base + at):
                    self._events_ended = True
                    break
                end = at if text[at] == "," else self._end_of_event(text, at, base)
                comma = skip_space(text, end)
                if comma >= len(text):
                    break
                found, is_sound = self._decode_event(text[at:end])
                events += found
                at = comma + (text[comma] == ",")
                self._start = base + at
        return events

    def _end_of_event(self, text: str, at: int, base: int) -> int:
        """Return the offset after the event at an offset; for a malformed event, the boundary after it.

        Raises:
            Malformed: the buffer holds no boundary after it.
            Unfinished: the event continues beyond the buffer.
        """
        try:
            return self._json.end_of(text, at)
        except Malformed as fault:
            boundary = self._next_event.boundary_after_fault(self._buffer, base + at, base + fault.at, self._end)
            if boundary is None:
                raise
            return boundary - base

    def _decode_event(self, text: str) -> tuple[list[Event], bool]:
        """Return the event in a text, none if it cannot be repaired, and whether it was sound."""
        raw = text.encode("latin-1")
        with suppress(*MALFORMED):
            return self._decoder.events(b"[" + raw + b"]"), True
        return self._decoder.repair(raw), False

    def _first_event(self) -> list[Event]:
        """Return the next event if the buffer holds its end; otherwise skip it."""
        text = self._text()
        at = skip_space(text, 0)
        try:
            end = self._end_of_last(text, at, self._start)
        except Unfinished:
            self.summary.dropped += 1
            self.summary.excesses[ExceededLimit.EVENT] += 1
            self._go_to_next_event()
            return []
        events, _ = self._decode_event(text[at:end])
        end = skip_space(text, end)
        self._start += end + text.startswith(",", end)
        return events

    def _go_to_next_event(self) -> None:
        """Skip to the next event, reading on as needed."""
        while True:
            if (comma := self._next_event.boundary(self._buffer, self._start, self._end)) is not None or self._at_end:
                self._start = self._end if comma is None else comma + 1
                return
            self._start = max(self._start, self._end - _LONGEST_BOUNDARY_BYTES)
            self._refill()

    # -- after the events ---------------------------------------------------------------------------------------

    def _read_tail(self) -> list[Event]:
        """Return the last events, then read the members after them, and any further list of events."""
        events: list[Event] = []
        more = True
        while more:
            text, at, more, base = self._text(), 0, False, self._start
            with suppress(Unfinished):
                while not text.startswith("]", at := skip_space(text, at)):
                    if text.startswith(",", at):
                        at += 1
                        continue
                    end = self._end_of_last(text, at, base)
                    events += self._decode_event(text[at:end])[0]
                    at = end
                more = not self._is_bare_array and self._scan_members(text, at + 1)
                continue
            self.summary.truncated = True
        return events

    def _end_of_last(self, text: str, at: int, base: int) -> int:
        """Return the offset after the event at an offset, which may be the last one.

        Raises:
            Unfinished: the file is cut off in it.
        """
        try:
            return self._end_of_event(text, at, base)
        except Malformed:
            for match in islice(_LAST_EVENT_END.finditer(text, at), _MOST_ENDS):
                rest = text[match.end() :].strip()
                if self._json.ends_object(rest) if rest else self._is_bare_array:
                    return match.start(1)
            raise
