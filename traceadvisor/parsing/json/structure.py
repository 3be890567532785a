"""Find structure in JSON bytes without decoding: the end of a value, and the start of the next event."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from traceadvisor.parsing.json.events import MALFORMED

# -- the beginning of a document ------------------------------------------------------------------------------------

_SKIPPED = r"(?:\xef\xbb\xbf)?\s*"
_NUMBER = r"-?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,9})?"
_VALUE = rf"(?:[\[{{\"]|(?:{_NUMBER}|true|false|null)\s*(?:[,\]]|\Z))"
_BEGIN = re.compile(rf"{_SKIPPED}(?:\{{\s*(?:[\"}}]|\Z)|\[\s*(?:\Z|\]|{_VALUE}))")
_NUMBERED = re.compile(_SKIPPED + r"\[[\d\s,.-]{0,40}\]\s*[^\s,\]]")
"""A line of a log: `[1,0]<stdout>`."""

_OTHER_LIST = re.compile(rf"{_SKIPPED}\[\s*(?!\{{){_VALUE}")


def begins_like_json(text: str) -> bool:
    """Whether a text, one character per byte, begins as a JSON object or list does. Logs begin with brackets, too."""
    return _BEGIN.match(text) is not None and not _NUMBERED.match(text)


def lists_no_objects(text: str) -> bool:
    """Whether a text begins as a JSON list does whose first member is no object, and so no event."""
    return begins_like_json(text) and _OTHER_LIST.match(text) is not None


# -- lists and objects within one another ---------------------------------------------------------------------------

_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_PLAIN = rb'[^"\[\]{}]*'
_BRACKETS = rb"([\[{]+|[\]}]+)?"
_FLAT = rb"[\[{]" + _PLAIN + rb"(?:" + _TEXT + _PLAIN + rb"){0,99}[\]}]"
_SHALLOW = rb"[\[{]" + _PLAIN + rb"(?:(?:" + _TEXT + rb"|" + _FLAT + rb")" + _PLAIN + rb"){0,99}[\]}]"
"""A list or object without nested ones, and one with only flat ones in it."""

_TO_BRACKETS = re.compile(_PLAIN + rb"(?:" + _TEXT + _PLAIN + rb"){0,999}" + _BRACKETS, re.DOTALL)
"""Strings and what is between them, then a run of brackets; without brackets after many strings."""

_TO_DEEP_BRACKETS = re.compile(
    _PLAIN + rb"(?:(?:" + _TEXT + rb"|" + _SHALLOW + rb")" + _PLAIN + rb"){0,999}" + _BRACKETS, re.DOTALL
)
"""The same, but shallow lists and objects are skipped like strings, which is much faster."""


def end_of_value(text: bytes | bytearray, at: int) -> int | None:
    """Return the offset after the list or object that begins at an offset; None if it does not end."""
    depth = 1
    for opens, offset, width in _brackets(_TO_DEEP_BRACKETS, text, at + 1):
        if not opens and depth <= width:
            return offset + depth
        depth += width if opens else -width
    return None


def flattened(text: bytes, deepest: int) -> tuple[bytes, int]:
    """Replace lists and objects nested deeper with null; return the text and the number replaced."""
    pieces: list[bytes] = []
    depth = kept_from = 0
    for opens, offset, width in _brackets(_TO_BRACKETS, text, 0):
        if opens and depth <= deepest < depth + width:
            pieces += (text[kept_from : offset + deepest - depth], b"null")
            kept_from = len(text)
        elif not opens and depth > deepest >= depth - width:
            kept_from = offset + depth - deepest
        depth += width if opens else -width
    return b"".join((*pieces, text[kept_from:])), len(pieces) // 2


def _brackets(run: re.Pattern[bytes], text: bytes | bytearray, at: int) -> Iterator[tuple[bool, int, int]]:
    """Yield runs of brackets outside strings: whether they open, their offset and their number."""
    while (match := run.match(text, at)) and match.end() > at:
        at = match.end()
        if brackets := match[1]:
            yield brackets[:1] in b"[{", match.start(1), len(brackets)


# -- one event behind another ---------------------------------------------------------------------------------------

_BOUNDARY = re.compile(rb"\}\s*(,)\s*(?=\{)")
_LIST_END = re.compile(rb"\]\s*,\s*\"")
_NEAR_END_BYTES = 1 << 10

_FIRST_KEY = re.compile(rb"\s*\{\s*\"([^\"\\]{0,99})\"\s*:")
_USUAL_FIRST_KEYS = (b"ph", b"name", b"cat", b"pid", b"tid", b"ts", b"dur", b"s", b"bp", b"args")
"""First keys of events in all kinds of files; not ``id``, because device entries after the events begin with it."""

_SCALAR_MEMBER = rb"\"[^\"\\]{0,99}\"\s*:\s*(?:\"(?:[^\"\\]|\\.){0,999}\"|[^\"\s,{}\[\]]{1,99})\s*,\s*"
_PHASE_SOON = re.compile(rb"\{\s*(?:" + _SCALAR_MEMBER + rb"){0,9}\"ph\"\s*:")


class _WithPhase(msgspec.Struct, gc=False):
    """A member that only events have."""

    ph: str


_EVENT = msgspec.json.Decoder(_WithPhase)


def last_boundary(text: bytes | bytearray, start: int, until: int) -> int | None:
    """Return the offset of the comma of the last ``}, {`` between two offsets."""
    near = max(start, until - _NEAR_END_BYTES)
    while True:
        last = None
        for match in _BOUNDARY.finditer(text, near, until):
            last = match.start(1)
        if last is not None or near == start:
            return last
        near = max(start, near - 4 * (until - near))


def ends_before_member(text: bytes | bytearray, bracket: int) -> bool:
    """Whether an object member follows the bracket at an offset."""
    return _LIST_END.match(text, bracket) is not None


class NextEvent:
    """Finds the boundary after a malformed event; not every ``}, {`` is one, nested lists may hold them too."""

    def __init__(self) -> None:
        self._first_keys = set(_USUAL_FIRST_KEYS)

    def learn(self, text: bytes | bytearray, at: int) -> None:
        """Remember how the event at an offset begins."""
        if begin := _FIRST_KEY.match(text, at):
            self._first_keys.add(begin[1])

    def boundary(self, text: bytes | bytearray, at: int, until: int) -> int | None:
        """Return the offset of the first comma between two offsets that an event follows."""
        for match in _BOUNDARY.finditer(text, at, until):
            begin = match.end()
            key = _FIRST_KEY.match(text, begin, until)
            if key and (key[1] in self._first_keys or _is_event(text, begin, until)):
                return match.start(1)
        return None

    def boundary_after_fault(self, text: bytes | bytearray, begin: int, fault: int, until: int) -> int | None:
        """Return the same for an event that begins at one offset and has its first fault at another.

        If the event's last brace is missing, its first fault is the beginning of the next event.
        """
        brace = text.rfind(b"}", begin, fault)
        at_boundary = brace >= 0 and not text[brace + 1 : fault].strip(b", \t\r\n")
        return self.boundary(text, brace if at_boundary else fault, until)


def _is_event(text: bytes | bytearray, begin: int, until: int) -> bool:
    """Whether the object at an offset has a phase: before anything nested, or anywhere if it holds no boundary."""
    if _PHASE_SOON.match(text, begin, until):
        return True
    following = _BOUNDARY.search(text, begin, until)
    raw = bytes(text[begin : following.start(1) if following else until])
    with suppress(*MALFORMED):
        _EVENT.decode(raw if following else raw[: end_of_value(raw, 0)])
        return True
    return False
