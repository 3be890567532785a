"""Read JSON values one at a time from an offset in a text, with the standard library's scanner."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from typing import Any

from traceadvisor.model.limits import Limits
from traceadvisor.parsing.exceeded_limits import ExceededLimit
from traceadvisor.parsing.json.structure import end_of_value, flattened

_SCANNER = json.JSONDecoder(strict=False, parse_int=str)
"""Finds where values end; integers of any length are cheap because they stay text."""

_STRICT_SCANNER = json.JSONDecoder(strict=True, parse_int=str)
"""Finds where a fault is: a line break inside a string reveals a missing quote."""

_SMALL = 1 << 14
"""Characters that may be decoded only to find where a value ends."""

_RUNS_OUT = re.compile(r"[\s,:]*\Z|\"(?:[^\"\\]++|\\.)*+\\?\Z|[\w.+-]{1,9}\Z|\\?u?[0-9a-fA-F]{0,3}\Z", re.DOTALL)
"""How cut text ends: after a whole token, or inside a string, a word, a number or an escape."""

_SPACE = re.compile(r"[\s\ufeff\xef\xbb\xbf]*")
"""White space, and a byte-order mark, decoded or not."""


class Unfinished(Exception):  # noqa: N818  # a signal to read more text, not an error
    """The JSON continues beyond the available text, or is malformed."""


class Malformed(Unfinished):
    """The text is not JSON, whatever follows it."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at
        """The offset of the first fault."""


class ValueReader:
    """Reads values from text decoded as Latin-1, so that offsets in the text and in its bytes are the same."""

    def __init__(self, limits: Limits, excesses: Counter[ExceededLimit]) -> None:
        self._limits = limits
        self._excesses = excesses
        self._member_bytes_left = limits.member_bytes
        self._decoder = json.JSONDecoder(strict=False, parse_int=self._integer)

    def key_at(self, text: str, at: int) -> tuple[str, int]:
        """Return the key at an offset and the offset after it.

        Raises:
            Unfinished: there is none, or it continues beyond the text.
        """
        try:
            key, end = _SCANNER.raw_decode(text, at) if text[at] == '"' else (None, at)
        except ValueError as error:
            raise Unfinished from error
        if key is None:
            raise Unfinished
        return str(key), end

    def end_of(self, text: str, at: int) -> int:
        """Return the offset after the value at an offset, however deep it is nested.

        Raises:
            Malformed: there is no valid value.
            Unfinished: the value continues beyond the text.
        """
        size = _SMALL
        while True:
            piece = text[at : at + size]  # small, for an error counts the lines before it
            is_last = at + size >= len(text)
            try:
                end = _SCANNER.raw_decode(piece)[1]
            except json.JSONDecodeError as error:
                if not _RUNS_OUT.match(piece, error.pos):
                    raise Malformed(at + _first_fault(piece, error.pos)) from error
                if is_last:
                    raise Unfinished from error
            except RecursionError as error:
                deep_end = end_of_value(text[at:].encode("latin-1"), 0)
                if deep_end is None:
                    raise Unfinished from error
                return at + deep_end
            else:
                if end < len(piece) or is_last:  # a number may continue
                    return at + end
            size *= 16

    def ends_object(self, text: str) -> bool:
        """Whether a text is the rest of an object after one of its members."""
        whole = "{" + text.removeprefix(",")
        with suppress(Unfinished):
            return self.end_of(whole, 0) == len(whole)
        return False

    def keep_member(self, members: dict[str, Any], key: str, text: str, at: int) -> int:
        """Add the member whose value is at an offset; null if it exceeds what is left of the size limit.

        Returns:
            The offset after it.

        Raises:
            Unfinished: it continues beyond the text, or is malformed.
        """
        end = _end_of_member(text, at) if text[at : at + 1] in ("[", "{") else self.end_of(text, at)
        if end >= len(text):  # a number may continue
            raise Unfinished
        size = len(key) + end - at
        if size <= self._member_bytes_left:
            members[key] = self._member(text[at:end].encode("latin-1"))
        else:
            self._excesses[ExceededLimit.MEMBER] += 1
            size = len(key)
            if size <= self._member_bytes_left:
                members[key] = None
        self._member_bytes_left -= min(size, self._member_bytes_left)
        return end

    def _member(self, raw: bytes) -> Any:
        """Return the value of some bytes, with null for parts nested too deep."""
        try:
            return self._built(raw)
        except ValueError as error:
            raise Unfinished from error

    def _built(self, raw: bytes) -> Any:
        with suppress(RecursionError):
            return self._decoder.decode(raw.decode("utf-8", "replace"))
        shallow, count = flattened(raw, self._limits.nesting_depth)
        self._excesses[ExceededLimit.DEPTH] += count
        with suppress(RecursionError):
            return self._decoder.decode(shallow.decode("utf-8", "replace"))
        return None

    def _integer(self, digits: str) -> int | None:
        if len(digits) <= self._limits.integer_digits:
            with suppress(ValueError):  # Python has its own limit
                return int(digits)
        self._excesses[ExceededLimit.DIGITS] += 1
        return None


def _first_fault(text: str, latest: int) -> int:
    """Return the offset of the first fault in a value: ``latest``, or a control character before it."""
    try:
        _STRICT_SCANNER.raw_decode(text)
    except json.JSONDecodeError as error:
        return min(error.pos, latest)
    return latest


def _end_of_member(text: str, at: int) -> int:
    """Return the offset after the list or object at an offset, without decoding large ones.

    Raises:
        Unfinished: it continues beyond the text, or is malformed.
    """
    size = _SMALL
    with suppress(ValueError, RecursionError):
        return at + _SCANNER.raw_decode(text[at : at + size])[1]
    while True:
        end = end_of_value(text[at : at + size].encode("latin-1"), 0)
        if end is not None:
            return at + end
        if at + size >= len(text):
            raise Unfinished
        size *= 4


def skip_space(text: str, at: int) -> int:
    """Return the offset of the first character that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at
