"""Quotes within texts that a profiler did not escape, told from those that end a text by what follows them."""

from __future__ import annotations

import re

_MARK = re.compile(r"\\.|[\"{}\[\],:]", re.DOTALL)

_KEY = r"\"(?:[^\"\\]|\\.)*+\"\s*:"
_BEHIND_KEY = re.compile(r"\s*:")
_BEHIND_MEMBER = re.compile(rf"\s*(?:,\s*{_KEY}|\}}|\Z)", re.DOTALL)
_BEHIND_ELEMENT = re.compile(r"\s*(?:,\s*[\"\[{\d\-ntfNI]|\])")
_OTHER_FAULT = re.compile(rf"\s*{_KEY}|\s*,\s*\w+\s*:\s*[\"\d{{\[]", re.DOTALL)
"""A comma that is missing, a key without quotes."""

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


def with_name_in_one_piece(text: str) -> str:
    """The event with every quote escaped that stands before the member behind its name.

    For names that look like JSON themselves, as torch.compile gives its frames: ``{"device": "cpu", ...}(12): run``.
    """
    begin = _NAME.search(text)
    end = _BEHIND_NAME.search(text, begin.end()) if begin else None
    if begin is None or end is None:
        return text
    name = text[begin.end() : end.start()]
    return f"{text[: begin.end()]}{_escaped(name)}{text[end.start() :]}"


def _what_follows(around: list[str], last: str) -> re.Pattern[str]:
    """What must stand behind the end of a text that begins here."""
    if around != ["{"]:
        return _BEHIND_ELEMENT
    return _BEHIND_MEMBER if last == ":" else _BEHIND_KEY


def _escaped(name: str) -> str:
    return _UNESCAPED.sub(lambda found: found["pair"] or r"\"", name)
