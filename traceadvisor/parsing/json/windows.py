"""A trace file as a stream of decoded windows of events, with whatever stands around them.

The file is never held whole. From a known event start, a prefix that ends at a ``}`` followed by ``,`` and ``{`` ends
with a complete event if and only if ``[`` + prefix + ``]`` decodes; so boundaries are guessed from the right, decoded,
and moved left when the guess was inside a string or a nested list. Where that fails for another reason, the decoder
tells the offset of the fault: behind the last event, or within one. What stands before it is decoded at once, and the
one event that holds it is repaired or left out, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import msgspec

from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.input_bytes import ByteStream
from traceadvisor.parsing.json.boundaries import NextEvent, end_before_member, last_boundary
from traceadvisor.parsing.json.decoder import EventDecoder
from traceadvisor.parsing.json.decoder_errors import LITERAL_BYTES, MALFORMED, fault_offset, goes_on, is_trailing
from traceadvisor.parsing.json.events import Event
from traceadvisor.parsing.json.excess import Excess
from traceadvisor.parsing.json.members import Members
from traceadvisor.parsing.json.text import JsonText, Unfinished, skip_space

WINDOW_BYTES = 1 << 20

_LAST_EVENT_END = re.compile(r"\}\s*(\])")
_LONGEST_BOUNDARY_BYTES = 1 << 10
_MOST_ENDS = 100
"""Brackets that are tried for the end of the events, where the last event is malformed."""


class WindowReader:
    """Reads one file; :meth:`windows` yields lists of events, :attr:`members` holds the rest once it is exhausted."""

    def __init__(
        self, stream: ByteStream, *, window_bytes: int = WINDOW_BYTES, limits: Limits = LIMITS, details: bool = True
    ) -> None:
        self._stream, self._limits = stream, limits
        self._buffer = bytearray(window_bytes)
        self._start = self._end = 0
        self._at_end = self._is_bare_array = self._in_object = self._events_ended = False
        self.members = Members()
        self._decoder = EventDecoder(limits, self.members.excesses, details=details)
        self._json = JsonText(limits, self.members.excesses)
        self._next_event = NextEvent()

    def windows(self) -> Iterator[list[Event]]:
        """The events, a window at a time. The raw members of an event are valid until the next window is asked for."""
        if not self._read_head():
            return
        self.members.has_events = True
        while not self._at_end:
            if events := self._decode_window():
                yield events
            elif self._is_giant() and self._events_ended:
                self.members.excesses[Excess.EVENT] += 1
                break
            elif self._is_giant():
                yield self._first_event()
            self._refill()
        while events := self._decode_window():
            yield events
        yield self._read_tail()
        self.members.dropped += self._decoder.dropped
        self.members.repaired += self._decoder.repaired

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
        self._at_end = self._end + count < len(self._buffer)
        self._end += count

    def _is_giant(self) -> bool:
        """Whether more is at hand than an event may be large."""
        return self._end - self._start > self._limits.event_bytes

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
            except Unfinished:
                if self._is_giant():
                    self.members.excesses[Excess.EVENT] += 1
                elif not self._at_end:
                    continue
                self.members.truncated = True
                return False

    def _scan_head(self) -> bool:
        text = self._text()
        if not self._in_object:
            at = skip_space(text, 0)
            if at >= len(text):
                raise Unfinished
            self._is_bare_array = text[at] == "["
            self.members.is_json = text[at] in "[{"
            self._in_object = text[at] == "{"
            text = text[at + 1 :]
            self._start += at + 1
        return self._scan_members(text, 0) if self._in_object else self._is_bare_array

    def _scan_members(self, text: str, at: int) -> bool:
        """Read members until ``traceEvents``; True when the first event is next, False at the object's end."""
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
            at = self._json.keep_member(self.members.values, key, text, at)
            self._start = begin + at

    # -- the events ---------------------------------------------------------------------------------------------

    def _decode_window(self) -> list[Event]:
        """Decode up to the last boundary that holds, and stand behind it; empty where none does."""
        events: list[Event] = []
        last = last_boundary(self._buffer, self._start, self._end)
        while not self._events_ended:
            try:
                return events + self._decode_to_boundary(last if last is None or last >= self._start else None)
            except MALFORMED as error:
                fault = fault_offset(error, self._buffer, self._start, self._end, self._limits)
                found = self._decode_to_end(fault) if is_trailing(error) else None
                if found is None and (found := self._decode_around(fault)) is None:
                    break
                events += found
        return events

    def _decode_to_boundary(self, comma: int | None) -> list[Event]:
        """The events up to a boundary, or one left of it where an event ends; none where no such is found.

        In a long list of objects there are boundaries without number, so the search goes left in ever larger steps.
        """
        step = 1
        while comma is not None:
            try:
                return self._decode_until(comma)
            except Unfinished:
                comma = last_boundary(self._buffer, self._start, comma - step)
                step *= 2
        return []

    def _decode_to_end(self, trailing: int) -> list[Event] | None:
        """All that is left, where a fault is that members of the file's object follow; None where no such do."""
        end = end_before_member(self._buffer, self._start, trailing)
        if end is None or self._is_bare_array:
            return None
        self._events_ended = True
        with suppress(*MALFORMED):  # of a last event that needs mending, which the tail does
            events = self._decoder.events(b"[" + self._buffer[self._start : end + 1])
            self._start = end
            return events
        return []

    def _decode_around(self, fault: int) -> list[Event] | None:
        """Decode what stands before a fault, and mend or leave out the event that holds it.

        Returns:
            The events; None where none stands before, and the one at fault does not end within the bytes at hand.
        """
        begun = self._start
        events = self._decode_before_fault(fault)
        from_fault = max(fault - LITERAL_BYTES, self._start)
        self._next_event.learn(self._buffer, begun)
        if (end := self._next_event.boundary(self._buffer, from_fault, self._end)) is not None:
            events += self._decoder.mended(bytes(self._buffer[self._start : end]))
            self._start = end + 1
        return events if self._start > begun else None

    def _decode_before_fault(self, fault: int) -> list[Event]:
        for until in (fault, fault - LITERAL_BYTES):
            with suppress(*MALFORMED):
                return self._decode_to_boundary(last_boundary(self._buffer, self._start, until))
        return []

    def _first_event(self) -> list[Event]:
        """The event that is next, where its end is at hand; where it is not, the event is left out."""
        text = self._text()
        try:
            events, end = self._decode_event(text, skip_space(text, 0))
        except Unfinished:
            self.members.dropped += 1
            self.members.excesses[Excess.EVENT] += 1
            self._go_to_next_event()
            return []
        end = skip_space(text, end)
        self._start += end + text.startswith(",", end)
        return events

    def _go_to_next_event(self) -> None:
        """However far that is."""
        while True:
            if (comma := self._next_event.boundary(self._buffer, self._start, self._end)) is not None or self._at_end:
                self._start = self._end if comma is None else comma + 1
                return
            self._start = max(self._start, self._end - _LONGEST_BOUNDARY_BYTES)
            self._refill()

    def _decode_until(self, comma: int) -> list[Event]:
        """The events before ``comma``; raises Unfinished where the last of them goes on behind it."""
        self._buffer[self._start - 1 : self._start] = b"["
        self._buffer[comma : comma + 1] = b"]"
        try:
            events = self._decoder.events(memoryview(self._buffer)[self._start - 1 : comma + 1])
        except MALFORMED as error:
            self._buffer[comma : comma + 1] = b","
            if goes_on(error):
                raise Unfinished from error
            raise
        self._start = comma + 1
        return events

    # -- after the events ---------------------------------------------------------------------------------------

    def _read_tail(self) -> list[Event]:
        """The last events, one by one, then the members behind them, and should there be more events, those."""
        events: list[Event] = []
        more = True
        while more:
            text, at, more = self._text(), 0, False
            with suppress(Unfinished):
                while not text.startswith("]", at := skip_space(text, at)):
                    if text.startswith(",", at):
                        at += 1
                        continue
                    found, at = self._decode_event(text, at)
                    events += found
                more = not self._is_bare_array and self._scan_members(text, at + 1)
                continue
            self.members.truncated = True
        return events

    def _decode_event(self, text: str, at: int) -> tuple[list[Event], int]:
        """The event at an offset, none where it is beyond repair, and the offset behind it.

        Raises:
            Unfinished: the file breaks off in it.
        """
        try:
            end = self._json.end_of(text, at)
        except Unfinished:
            end = self._end_of_malformed(text, at)
        raw = text[at:end].encode("latin-1")
        with suppress(*MALFORMED):
            return self._decoder.events(b"[" + raw + b"]"), end
        return self._decoder.mended(raw), end

    def _end_of_malformed(self, text: str, at: int) -> int:
        """Where the next event or the end of the events follows."""
        raw = text[at:].encode("latin-1")
        try:
            msgspec.json.decode(raw)
        except MALFORMED as error:
            if goes_on(error):
                raise Unfinished from error
        if (comma := self._next_event.boundary(raw, 0, len(raw))) is not None:
            return at + comma
        for match in islice(_LAST_EVENT_END.finditer(text, at), _MOST_ENDS):
            rest = text[match.end() :].strip()
            if self._json.ends_object(rest) if rest else self._is_bare_array:
                return match.start(1)
        raise Unfinished
