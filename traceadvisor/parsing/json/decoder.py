"""Decode bytes into typed events: fast if all types fit, else member by member, repaired if malformed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from traceadvisor.model.limits import Limits
from traceadvisor.parsing.exceeded_limits import ExceededLimit
from traceadvisor.parsing.json.events import BRIEF_EVENT, DETAILED_EVENT, MALFORMED, Event, Lenient, LooseEvent
from traceadvisor.parsing.json.structure import flattened

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
        self._repairs = _Repair(limits, excesses)
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
        self.dropped += max(1, sum(1 for _ in _PHASE.finditer(raw)))
        return []


_CONTROL = re.compile(r"[\x00-\x1f]")

_ESCAPE = re.compile(
    r"(?P<good>\\(?:[\"\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))"
    r"|(?P<surrogate>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\"
)

_NO_NUMBER = r"(?<=[:\[,])(?P<space>\s*)(?:{})(?=\s*[,\]}}])"
_NOT_FINITE = re.compile(
    _NO_NUMBER.format(r"[-+]?(?:nan|inf(?:inity)?)|n/a|-?\d[\d.]*e\+?\d{3,}"),
    re.IGNORECASE,
)


class _Repair:
    """Repairs events within limits."""

    def __init__(self, limits: Limits, excesses: Counter[ExceededLimit]) -> None:
        self._deepest = limits.nesting_depth
        self._excesses = excesses
        self._too_long = re.compile(_NO_NUMBER.format(rf"-?\d{{{limits.integer_digits + 1},}}"))

    def attempts(self, raw: bytes) -> Iterator[bytes]:
        """Yield candidates for the intended event, the likeliest first.

        Every candidate has control characters, single backslashes in Windows paths (pytorch#98432), lone surrogates,
        invalid UTF-8 and ``nan`` or ``inf`` as a number (kineto#105) repaired. Unescaped quotes (pytorch#146900) leave
        more than one candidate.
        """
        shallow, deep = flattened(raw, self._deepest)
        text, long = self._too_long.subn(r"\g<space>null", _CONTROL.sub(" ", shallow.decode("utf-8", "replace")))
        self._excesses.update({ExceededLimit.DEPTH: deep, ExceededLimit.DIGITS: long})
        text = _NOT_FINITE.sub(r"\g<space>null", text)
        for way in (str, with_quotes_escaped, _with_name_in_one_piece):
            yield _ESCAPE.sub(_escape, way(text)).encode("utf-8")


def _escape(match: re.Match[str]) -> str:
    if match["good"]:
        return match["good"]
    return r"\ufffd" if match["surrogate"] else r"\\"


_MARK = re.compile(r"\\.|[\"{}\[\],:]", re.DOTALL)

_KEY = r"\"(?:[^\"\\]|\\.)*+\"\s*:"
_BEHIND_KEY = re.compile(r"\s*:")
_BEHIND_MEMBER = re.compile(rf"\s*(?:,\s*{_KEY}|\}}|\Z)", re.DOTALL)
_BEHIND_ELEMENT = re.compile(r"\s*(?:,\s*[\"\[{\d\-ntfNI]|\])")
_OTHER_FAULT = re.compile(rf"\s*{_KEY}|\s*,\s*\w+\s*:\s*[\"\d{{\[]", re.DOTALL)
"""A missing comma, or a key without quotes."""

_MEMBERS = r"ph|cat|name|pid|tid|ts|dur|id|s|bp|args"
_NAME = re.compile(r"\"name\"\s*:\s*\"")
_BEHIND_NAME = re.compile(rf"\"\s*(?:,\s*\"(?:{_MEMBERS})\"\s*:|\}}\s*(?:\}}|\Z))")
_UNESCAPED = re.compile(r"(?P<pair>\\.)|\"", re.DOTALL)


def with_quotes_escaped(text: str) -> str:
    """The event with a backslash before each quote that cannot end a text where it stands.

    As it is, where another fault looks the same.
    """
    pieces: list[str] = []
    kept_from = 0
    around: list[str] = []
    last, behind = "", None
    for mark in _MARK.finditer(text):
        sign = mark[0]
        if behind is None:
            if sign == '"':
                behind = _what_follows(around[-1:], last)
            elif sign in "{[":
                around.append(sign)
            elif sign in "}]":
                del around[-1:]
            last = sign
        elif sign == '"':
            if behind.match(text, mark.end()):
                behind = None
            elif _OTHER_FAULT.match(text, mark.end()):
                return text
            else:
                pieces += (text[kept_from : mark.start()], "\\")
                kept_from = mark.start()
    return "".join((*pieces, text[kept_from:]))


def _with_name_in_one_piece(text: str) -> str:
    """Return the event with every quote in its name escaped, up to the next member.

    For names that look like JSON, as torch.compile names its frames: ``{"device": "cpu", ...}(12): run``.
    """
    begin = _NAME.search(text)
    end = _BEHIND_NAME.search(text, begin.end()) if begin else None
    if begin is None or end is None:
        return text
    name = text[begin.end() : end.start()]
    return f"{text[: begin.end()]}{_escaped(name)}{text[end.start() :]}"


def _what_follows(around: list[str], last: str) -> re.Pattern[str]:
    """Return what must follow the end of a text that begins here."""
    if around != ["{"]:
        return _BEHIND_ELEMENT
    return _BEHIND_MEMBER if last == ":" else _BEHIND_KEY


def _escaped(name: str) -> str:
    return _UNESCAPED.sub(lambda found: found["pair"] or r"\"", name)
