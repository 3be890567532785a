"""Cleans untrusted text before it is shown: no control characters, no secrets, no home directories.

Each output format also escapes the text for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, hyperlinks
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours and cursor movements
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # device control strings
    r"|\x1b[ -/]*[0-~]?"
)
_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters other than tab and line feed
    "\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # zero width, bidirectional overrides
    "\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e0fff"  # tags and variation selectors
    "]"
)
_LINE_ENDS = re.compile("\r\n?|[\x85\u2028\u2029]")
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")

_NAME = r"(?!~)[^/\\\s:;,'\"]+"
_SPACED_NAME = rf"(?:{_NAME}(?: {_NAME}){{1,2}}(?=[/\\])|{_NAME})"
"""A user's name; with spaces only where the path goes on, because else a sentence follows."""

_HOMES = re.compile(
    r"(?<![\w.~-])(?:/(?:Volumes/[^/\s]{1,60}|[\w.-]{1,60}(?:/[\w.-]{1,60}){0,2}))?"
    rf"/{{1,9}}(?:home\d{{0,2}}|homes|[Uu]sers)/{{1,9}}{_SPACED_NAME}"
    r"|(?<![\w.~-])(?:/var)?/root(?![\w.-])"
    rf"|(?:\b[A-Za-z]:|\\\\[\w.$-]{{1,60}})[\\/]{{1,9}}Users[\\/]{{1,9}}{_SPACED_NAME}"
    r"|(?i:%2F(?:home|users)%2F)[^%/\\\s:;,&'\"]+"
)

# Bounded repetitions keep the time linear, even for a megabyte of hostile text.


SHORTEST_WITHHELD = 6
"""Characters of a word; a shorter one may be part of another by chance."""

_MOST_PASSES = 5
"""Redacting one secret may reveal the form of another; two passes are nearly always enough."""


_withheld: list[re.Pattern[str]] = []
"""Words to redact besides, the last one in force."""


@contextmanager
def withholding(words: Iterable[str]) -> Iterator[None]:
    """Redact these words in this block, too, wherever they stand: the secrets that this process was started with.

    An error of a script may repeat one without the name that calls it a secret.
    """
    longest_first = sorted({word for word in words if len(word) >= SHORTEST_WITHHELD}, key=len, reverse=True)
    if not longest_first:
        yield
        return
    _withheld.append(re.compile("|".join(map(re.escape, longest_first))))
    try:
        yield
    finally:
        _withheld.pop()


def clean(text: str) -> str:
    """Strip control characters, redact secrets, and write home directories as ``~``.

    Line feeds stay. Cleaning twice changes nothing.
    """
    if len(text) > LONGEST_KEPT:
        return redacted(_without_unseen(text))
    return _cleaned(text, *in_force())


def in_force() -> tuple[re.Pattern[str] | None, ...]:
    """The patterns that decide on the clean form of a text, besides those that never change."""
    return (_own_home(), *_withheld[-1:])


LONGEST_KEPT = 500
"""Characters of a text whose clean form is kept: reports of a folder repeat most of theirs."""


@lru_cache(1 << 13)
def _cleaned(text: str, *_in_force: re.Pattern[str] | None) -> str:
    return redacted(_without_unseen(text))


def redacted(text: str) -> str:
    """Redact secrets and write home directories as ``~``; control characters stay."""
    from traceadvisor.text.secrets import REDACTED, without_secrets  # noqa: PLC0415  # its patterns take 0.03 s

    for words in _withheld[-1:]:
        text = words.sub(REDACTED, text)
    for _ in range(_MOST_PASSES):
        before, text = text, without_homes(without_secrets(text))
        if text == before:
            break
    return text


def one_line(text: str) -> str:
    """Join the text into one line, with single spaces."""
    return " ".join(text.split())


def clipped(text: str, longest: int) -> str:
    """Cut the text to ``longest`` characters, with an ellipsis as the last if something is missing."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def clipped_inside(text: str, longest: int) -> str:
    """Cut the text to ``longest`` characters in its middle, because names often differ at their end."""
    if len(text) <= longest:
        return text
    head = longest // 3
    return f"{text[:head]}…{text[len(text) - (longest - head - 1) :]}"


def without_surrogates(text: str) -> str:
    """The text with a mark for each byte of a path that was not UTF-8."""
    return _LONE_SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def _without_unseen(text: str) -> str:
    return without_surrogates(_UNSEEN.sub("", _LINE_ENDS.sub("\n", _ESCAPE_SEQUENCES.sub("", text))))


def without_homes(text: str) -> str:
    """Write home directories as ``~``."""
    own = _own_home()
    return _HOMES.sub("~", text if own is None else own.sub("~", text))


@cache
def _own_home() -> re.Pattern[str] | None:
    """Matches the home directory of this user; None if it is unknown or a root."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return re.compile(rf"(?<![\w.~-]){re.escape(str(home))}(?![\w.-])") if len(home.parts) > 2 else None
