"""Decode bytes into typed events: fast if all types fit, else member by member, repaired if malformed."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress

import msgspec

from traceadvisor.model.limits import Limits
from traceadvisor.parsing.exceeded_limits import ExceededLimit
from traceadvisor.parsing.json.events import BRIEF_EVENT, DETAILED_EVENT, MALFORMED, Event, Lenient, LooseEvent
from traceadvisor.parsing.json.repair import Repair

_DETAILED: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[DETAILED_EVENT])
_BRIEF: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[BRIEF_EVENT])
_UNTYPED = msgspec.json.Decoder(list[LooseEvent])
_RAW = msgspec.json.Decoder(list[msgspec.Raw])

_PHASE = re.compile(rb"\"ph\"\s*:")


class EventDecoder:
    """Decodes events and counts those that were repaired or dropped."""

    def __init__(self, limits: Limits, excesses: Counter[ExceededLimit], *, details: bool = True) -> None:
        self._typed = _DETAILED if details else _BRIEF
        self._lenient = Lenient()
        self._repairs = Repair(limits, excesses)
        self._repaired = 0
        self.dropped = 0
        """Events that could not be repaired."""

    @property
    def repaired(self) -> int:
        """Repaired events, and event members that were ignored."""
        return self._repaired + self._lenient.repaired

    def events(self, array: memoryview | bytes) -> list[Event]:
        """Return the events of a JSON array; raise one of MALFORMED if it is not one."""
        try:
            return self._typed.decode(array)
        except (msgspec.ValidationError, UnicodeDecodeError):
            return self._untyped(array)

    def _untyped(self, array: memoryview | bytes) -> list[Event]:
        """Return the events whatever their member types; events that do not decode are repaired one by one."""
        try:
            events = [self._lenient.event(loose) for loose in _UNTYPED.decode(array)]
        except (msgspec.ValidationError, UnicodeDecodeError):
            raws = _RAW.decode(array)
            if len(raws) == 1:
                raise
            return [event for raw in raws for event in self._single(bytes(raw))]
        return [event for event in events if event]

    def _single(self, raw: bytes) -> list[Event]:
        try:
            return self.events(b"[" + raw + b"]")
        except MALFORMED:
            return self.repair(raw)

    def repair(self, raw: bytes) -> list[Event]:
        """Return a malformed event repaired, or nothing if it cannot be."""
        for attempt in self._repairs.attempts(raw):
            with suppress(*MALFORMED):
                if events := self.events(b"[" + attempt + b"]"):
                    self._repaired += 1
                    return events
        self.dropped += _count_events(raw)
        return []


def _count_events(text: bytes) -> int:
    """Count the events in malformed text by their phases; at least one."""
    return max(1, sum(1 for _ in _PHASE.finditer(text)))
