"""Bytes of events to typed events: fast where they fit, member by member where they do not, mended where broken."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from traceadvisor.parsing.event_json import Event, Lenient, LooseEvent
from traceadvisor.parsing.repair import repaired

MALFORMED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What decoding raises."""

_TYPED = msgspec.json.Decoder(list[Event])
_UNTYPED = msgspec.json.Decoder(list[LooseEvent])


class EventDecoder:
    """Decodes events and counts what was not as it should be."""

    def __init__(self) -> None:
        self._lenient = Lenient()
        self._mended = 0
        self.dropped = 0
        """Events that were beyond repair."""

    @property
    def repaired(self) -> int:
        """Events that were mended, and members of events that were set aside."""
        return self._mended + self._lenient.repaired

    def events(self, array: memoryview | bytes) -> list[Event]:
        """The events of a JSON array; raises one of MALFORMED where it is none."""
        try:
            return _TYPED.decode(array)
        except msgspec.ValidationError:
            return [self._lenient.event(loose) for loose in _UNTYPED.decode(array)]

    def mended(self, raw: bytes) -> list[Event]:
        """A malformed event, where it can be repaired; none where it cannot."""
        with suppress(*MALFORMED):
            events = self.events(b"[" + repaired(raw) + b"]")
            self._mended += 1
            return events
        self.dropped += 1
        return []
