"""What the decoder of events raises, and where in the bytes it met the fault."""

from __future__ import annotations

import re

import msgspec

from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.parsing.json.nesting import deeper_than

MALFORMED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What decoding raises."""

LITERAL_BYTES = 5
"""A fault is told by so much too late, and perhaps behind its event, where the decoder took it for ``false``."""

_FAULT_AT = re.compile(r"\(byte (\d+)\)")


def goes_on(error: Exception) -> bool:
    """Whether the decoder merely ran out of bytes."""
    return str(error) == "Input data was truncated"


def is_trailing(error: Exception) -> bool:
    """Whether something follows behind the end of what was to be decoded; the fault is told by one byte too late."""
    return "trailing characters" in str(error)


def fault_offset(error: Exception, buffer: bytearray, start: int, end: int, limits: Limits) -> int:
    """Where in a buffer the decoder met what it could not decode; ``start`` where that is not known.

    What was decoded is an array, the bracket that opens it in place of the byte before ``start``.
    """
    at: int | None = None
    if isinstance(error, RecursionError):
        at = deeper_than(buffer, min(limits.nesting_depth, LIMITS.nesting_depth), start, end)
    elif isinstance(error, UnicodeDecodeError):
        at = buffer.find(error.object, start)
    elif told := _FAULT_AT.search(str(error)):
        at = start - 1 + int(told[1])
    return start if at is None else max(at, start)
