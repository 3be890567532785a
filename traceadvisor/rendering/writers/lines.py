"""Lines of a terminal as plain data, which the command line prints, wrapped to its width."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from enum import Enum

from traceadvisor.frozen import frozen


class Style(Enum):
    """Text styles; the values are style names of rich."""

    PLAIN = ""
    STRONG = "bold"
    QUIET = "dim"
    GAIN = "green"
    WARNING = "yellow"
    CODE = "cyan"


@frozen
class Piece:
    """Text in one style; rich markup in it has no effect."""

    text: str
    style: Style = Style.PLAIN


@frozen
class Line:
    """One line; an empty line separates paragraphs."""

    pieces: tuple[Piece, ...] = ()
    hanging: int = 0
    """Columns by which its second and later parts are indented where it is wrapped."""

    unbroken: bool = False
    """Whether it must stay one line, because it is copied or aligned: a path, a command, a row of a table."""

    @property
    def text(self) -> str:
        """The line without styles."""
        return "".join(piece.text for piece in self.pieces)


NARROWEST = 40
"""Columns; a narrower terminal wraps by itself."""


def wrapped(line: Line, columns: int) -> Iterator[Line]:
    """The line in parts of at most this many columns, broken between words.

    A word longer than a line is broken, too, except a path: it stays whole, so that it can be copied.
    """
    columns = max(columns, NARROWEST)
    if line.unbroken or width_of(line.text) <= columns:
        yield line
        return
    for place, (start, end) in enumerate(_cuts(line.text, columns, line.hanging)):
        indent = (Piece(" " * line.hanging),) if place and line.hanging else ()
        yield Line((*indent, *_sliced(line, start, end)))


def width_of(text: str) -> int:
    """Columns that a terminal takes for the text."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cuts(text: str, columns: int, hanging: int) -> Iterator[tuple[int, int]]:
    """Start and end of each part of the text."""
    start, end, room = 0, 0, columns
    for word in re.finditer(r"\S+", text):
        is_whole = "/" in word[0]
        is_long = width_of(word[0]) > columns - hanging
        has_begun = end > start and width_of(text[start:end]) >= hanging
        if has_begun and (is_whole or not is_long) and width_of(text[start : word.end()]) > room:
            yield start, end
            start, room = word.start(), columns - hanging
        end = word.end()
        while not is_whole and width_of(text[start:end]) > room:
            cut = _last_fitting(text, start, end, room)
            yield start, cut
            start, room = cut, columns - hanging
    if end > start:
        yield start, end


def _last_fitting(text: str, start: int, end: int, room: int) -> int:
    """The end of the longest beginning that fits; at least one character."""
    taken = 0
    for place in range(start, end):
        taken += _width(text[place])
        if taken > room:
            return max(place, start + 1)
    return end


def _sliced(line: Line, start: int, end: int) -> Iterator[Piece]:
    at = 0
    for piece in line.pieces:
        low, high = max(start - at, 0), min(end - at, len(piece.text))
        if low < high:
            yield Piece(piece.text[low:high], piece.style)
        at += len(piece.text)
