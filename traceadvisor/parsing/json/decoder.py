"""Bytes of events to typed events: fast where they fit, member by member where they do not, mended where broken."""

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
    """Decodes events and counts what was not as it should be."""

    def __init__(self, limits: Limits, excesses: Counter[ExceededLimit], *, details: bool = True) -> None:
        self._typed = _DETAILED if details else _BRIEF
        self._lenient = Lenient()
        self._repair = Repair(limits, excesses)
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
            return self._typed.decode(array)
        except (msgspec.ValidationError, UnicodeDecodeError):
            return self._untyped(array)

    def _untyped(self, array: memoryview | bytes) -> list[Event]:
        """The events, whatever their members are; those that hold what no decoder takes are mended one by one."""
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
            return self.mended(raw)

    def mended(self, raw: bytes) -> list[Event]:
        """A malformed event, where it can be repaired; none where it cannot."""
        for attempt in self._repair.attempts(raw):
            with suppress(*MALFORMED):
                if events := self.events(b"[" + attempt + b"]"):
                    self._mended += 1
                    return events
        self.dropped += _count_events(raw)
        return []


def _count_events(text: bytes) -> int:
    """How many events malformed text holds, judging by their phases; one at least."""
    return max(1, sum(1 for _ in _PHASE.finditer(text)))
