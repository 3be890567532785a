"""JSON values within a text, one at a time, as the standard library reads them: from an offset, and where they end."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from typing import Any

from traceadvisor.model.limits import Limits
from traceadvisor.parsing.excess import Excess
from traceadvisor.parsing.nesting import end_of_value, flattened

_SCANNER = json.JSONDecoder(strict=False, parse_int=str)
"""For where values end; whole numbers of any length cost it next to nothing."""

_SPACE = re.compile(r"[\s\ufeff\xef\xbb\xbf]*")
"""With a byte-order mark, decoded or not."""


class Unfinished(Exception):  # noqa: N818  # a signal to whoever has more of the text, not an error
    """The JSON goes on beyond the text at hand, or is none."""


class JsonText:
    """Reads values out of text that was decoded as Latin-1, so that an offset in it is one in its bytes."""

    def __init__(self, limits: Limits, excesses: Counter[Excess]) -> None:
        self._limits = limits
        self._excesses = excesses
        self._decoder = json.JSONDecoder(strict=False, parse_int=self._integer)

    def key_at(self, text: str, at: int) -> tuple[str, int]:
        """The key at an offset and the offset behind it.

        Raises:
            Unfinished: there is none, or it goes on.
        """
        try:
            key, end = _SCANNER.raw_decode(text, at)
            return str(key), end
        except (ValueError, RecursionError) as error:
            raise Unfinished from error

    def end_of(self, text: str, at: int) -> int:
        """The offset behind the value at an offset, however deep it is nested; raises as :meth:`key_at` does."""
        try:
            return _SCANNER.raw_decode(text, at)[1]
        except ValueError as error:
            raise Unfinished from error
        except RecursionError as error:
            end = end_of_value(text[at:].encode("latin-1"), 0)
            if end is None:
                raise Unfinished from error
            return at + end

    def ends_object(self, text: str) -> bool:
        """Whether a text is the rest of an object, behind one of its members."""
        whole = "{" + text.removeprefix(",")
        with suppress(Unfinished):
            return self.end_of(whole, 0) == len(whole)
        return False

    def member(self, raw: bytes) -> Any:
        """The value that some bytes hold; null for what is nested too deep in it."""
        with suppress(RecursionError):
            return self._decoder.decode(raw.decode("utf-8", "replace"))
        shallow, count = flattened(raw, self._limits.nesting_depth)
        self._excesses[Excess.DEPTH] += count
        with suppress(RecursionError):
            return self._decoder.decode(shallow.decode("utf-8", "replace"))
        return None

    def _integer(self, digits: str) -> int | None:
        if len(digits) <= self._limits.integer_digits:
            with suppress(ValueError):  # there is a limit of Python's own
                return int(digits)
        self._excesses[Excess.DIGITS] += 1
        return None


def skip_space(text: str, at: int) -> int:
    """The offset of what follows white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at
