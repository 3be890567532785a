"""Where in bytes one event ends and the next begins, as far as that is told by how events look."""

from __future__ import annotations

import re
from contextlib import suppress

import msgspec

from traceadvisor.parsing.json.decoder_errors import MALFORMED
from traceadvisor.parsing.json.nesting import end_of_value

_BOUNDARY = re.compile(rb"\}\s*(,)\s*(?=\{)")
_LIST_END = re.compile(rb"\]\s*,\s*\"")
_NEAR_END_BYTES = 1 << 10

_FIRST_KEY = re.compile(rb"\s*\{\s*\"([^\"\\]{0,99})\"\s*:")
_USUAL_FIRST_KEYS = (b"ph", b"name", b"cat", b"pid", b"tid", b"ts", b"dur", b"s", b"bp", b"args")
"""Of events, in files of all kinds; ``id`` is none of them, since the devices behind the events begin with it."""

_SCALAR_MEMBER = rb"\"[^\"\\]{0,99}\"\s*:\s*(?:\"(?:[^\"\\]|\\.){0,999}\"|[^\"\s,{}\[\]]{1,99})\s*,\s*"
_PHASE_SOON = re.compile(rb"\{\s*(?:" + _SCALAR_MEMBER + rb"){0,9}\"ph\"\s*:")
_PHASE = re.compile(rb"\"ph\"\s*:")


class _WithPhase(msgspec.Struct, gc=False):
    """What no object but an event has."""

    ph: str


_EVENT = msgspec.json.Decoder(_WithPhase)


def last_boundary(text: bytes | bytearray, start: int, until: int) -> int | None:
    """Offset of the comma of the last ``}, {`` between two offsets."""
    near = max(start, until - _NEAR_END_BYTES)
    while True:
        last = None
        for match in _BOUNDARY.finditer(text, near, until):
            last = match.start(1)
        if last is not None or near == start:
            return last
        near = max(start, near - 4 * (until - near))


def end_before_member(text: bytes | bytearray, start: int, trailing: int) -> int | None:
    """Offset of the bracket behind which a decoder met trailing characters, where those begin a member of an object."""
    end = text.rfind(b"]", start, trailing - 1)
    return end if end >= 0 and _LIST_END.match(text, end) else None


def count_events(text: bytes) -> int:
    """How many events malformed text holds, judging by their phases; one at least."""
    return max(1, sum(1 for _ in _PHASE.finditer(text)))


class NextEvent:
    """Finds the boundary behind a malformed event: more than any ``}, {``, since nested lists may hold those."""

    def __init__(self) -> None:
        self._first_keys = set(_USUAL_FIRST_KEYS)

    def learn(self, text: bytes | bytearray, at: int) -> None:
        """Take note of how the event at an offset begins."""
        if begin := _FIRST_KEY.match(text, at):
            self._first_keys.add(begin[1])

    def boundary(self, text: bytes | bytearray, at: int, until: int) -> int | None:
        """Offset of the first comma between two offsets that an event follows."""
        for match in _BOUNDARY.finditer(text, at, until):
            begin = match.end()
            key = _FIRST_KEY.match(text, begin, until)
            if key and (key[1] in self._first_keys or _is_event(text, begin, until)):
                return match.start(1)
        return None


def _is_event(text: bytes | bytearray, begin: int, until: int) -> bool:
    """Whether the object at an offset has a phase: before anything nested, or wherever, if no boundary is in it."""
    if _PHASE_SOON.match(text, begin, until):
        return True
    following = _BOUNDARY.search(text, begin, until)
    raw = bytes(text[begin : following.start(1) if following else until])
    with suppress(*MALFORMED):
        _EVENT.decode(raw if following else raw[: end_of_value(raw, 0)])
        return True
    return False
