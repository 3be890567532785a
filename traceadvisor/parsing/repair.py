"""An event that is no JSON, made into JSON where its faults are known ones; only the bad bytes are touched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from traceadvisor.model.limits import Limits
from traceadvisor.parsing.excess import Excess
from traceadvisor.parsing.nesting import flattened
from traceadvisor.parsing.stray_quotes import with_name_in_one_piece, with_quotes_escaped

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


class Repair:
    """Mends events within limits."""

    def __init__(self, limits: Limits, excesses: Counter[Excess]) -> None:
        self._deepest = limits.nesting_depth
        self._excesses = excesses
        self._too_long = re.compile(_NO_NUMBER.format(rf"-?\d{{{limits.integer_digits + 1},}}"))

    def attempts(self, raw: bytes) -> Iterator[bytes]:
        """What the event may have been meant to be, the likeliest first.

        Raw control characters, single backslashes in paths of Windows (pytorch#98432), lone surrogates, bytes that are
        no UTF-8 and ``nan`` or ``inf`` for a number (kineto#105) are mended in each; unescaped quotes (pytorch#146900)
        leave more than one possibility.
        """
        shallow, deep = flattened(raw, self._deepest)
        text, long = self._too_long.subn(r"\g<space>null", _CONTROL.sub(" ", shallow.decode("utf-8", "replace")))
        self._excesses.update({Excess.DEPTH: deep, Excess.DIGITS: long})
        text = _NOT_FINITE.sub(r"\g<space>null", text)
        for way in (str, with_quotes_escaped, with_name_in_one_piece):
            yield _ESCAPE.sub(_escape, way(text)).encode("utf-8")


def _escape(match: re.Match[str]) -> str:
    if match["good"]:
        return match["good"]
    return r"\ufffd" if match["surrogate"] else r"\\"
