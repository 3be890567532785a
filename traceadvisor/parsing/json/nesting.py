"""Lists and objects within one another, in text that no decoder goes into."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PART = re.compile(rb'"(?:[^"\\]+|\\.)*"?|[\[{]+|[\]}]+', re.DOTALL)
"""A text, or brackets in a row."""


def end_of_value(text: bytes | bytearray, at: int) -> int | None:
    """The offset behind the list or object that begins at an offset; None where it does not end."""
    depth = 0
    for opens, offset, width in _brackets(text, at, len(text)):
        if not opens and depth <= width:
            return offset + depth
        depth += width if opens else -width
    return None


def deeper_than(text: bytes | bytearray, deepest: int, at: int, until: int) -> int | None:
    """The offset at which lists and objects are first nested deeper; None where they never are."""
    depth = 0
    for opens, offset, width in _brackets(text, at, until):
        if opens and depth + width > deepest:
            return offset + deepest - depth
        depth += width if opens else -width
    return None


def flattened(text: bytes, deepest: int) -> tuple[bytes, int]:
    """The text with null for every list or object that is nested deeper, and how many there were."""
    pieces: list[bytes] = []
    depth = kept_from = 0
    for opens, offset, width in _brackets(text, 0, len(text)):
        if opens and depth <= deepest < depth + width:
            pieces += (text[kept_from : offset + deepest - depth], b"null")
            kept_from = len(text)
        elif not opens and depth > deepest >= depth - width:
            kept_from = offset + depth - deepest
        depth += width if opens else -width
    return b"".join((*pieces, text[kept_from:])), len(pieces) // 2


def _brackets(text: bytes | bytearray, at: int, until: int) -> Iterator[tuple[bool, int, int]]:
    """Runs of brackets outside texts: whether they open, where they stand, how many there are."""
    for part in _PART.finditer(text, at, until):
        if part[0][0] != _QUOTE:
            yield part[0][0] in b"[{", part.start(), len(part[0])


_QUOTE = ord('"')
