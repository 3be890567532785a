"""An event that is no JSON, made into JSON where its faults are known ones; only the bad bytes are touched."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f]")

_ESCAPE = re.compile(
    r"(?P<good>\\(?:[\"\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))"
    r"|(?P<surrogate>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\"
)

_NO_NUMBER = re.compile(
    r"(?<=[:\[,])(?P<space>\s*)(?:[-+]?(?:nan|inf(?:inity)?)|n/a|-?\d[\d.]*e\+?\d{3,}|-?\d{400,})(?=\s*[,\]}])",
    re.IGNORECASE,
)


def repaired(raw: bytes) -> bytes:
    """The event with raw control characters, bad escapes, lone surrogates, bad UTF-8 and numbers that are none mended.

    Windows paths with single backslashes (pytorch#98432) and ``nan`` or ``inf`` for a number (kineto#105) are the usual
    faults. What is still no JSON afterwards is beyond repair.
    """
    text = _CONTROL.sub(" ", raw.decode("utf-8", "replace"))
    return _NO_NUMBER.sub(r"\g<space>null", _ESCAPE.sub(_escape, text)).encode("utf-8")


def _escape(match: re.Match[str]) -> str:
    if match["good"]:
        return match["good"]
    return r"\ufffd" if match["surrogate"] else r"\\"
