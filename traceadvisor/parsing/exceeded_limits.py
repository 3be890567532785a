"""The input limits that a file exceeded, and the notes about it."""

from __future__ import annotations

from collections import Counter
from enum import Enum

from traceadvisor.model.health import HealthNote
from traceadvisor.model.limits import Limits


class ExceededLimit(Enum):
    """A limit that a file exceeded; the value is the limit's name."""

    RATIO = "inflation_ratio"
    BYTES = "inflated_bytes"
    EVENT = "event_bytes"
    MEMBER = "member_bytes"
    TEXT = "text_length"
    DEPTH = "nesting_depth"
    DIGITS = "integer_digits"


ENDS_READING = frozenset({ExceededLimit.RATIO, ExceededLimit.BYTES, ExceededLimit.EVENT})
"""Reading stops at these limits, so the file may hold more events."""

_WHAT = {
    ExceededLimit.RATIO: "The file decompresses to more than {limit} times its size; reading stopped there",
    ExceededLimit.BYTES: "The file decompresses to more than {limit} bytes; reading stopped there",
    ExceededLimit.EVENT: "Entries larger than {limit} bytes were left out ({count} in all)",
    ExceededLimit.MEMBER: "Metadata is read up to {limit} bytes; {count} of its members were left out",
    ExceededLimit.TEXT: "Names and other texts longer than {limit} characters were shortened ({count} in all)",
    ExceededLimit.DEPTH: "Values nested deeper than {limit} levels were left out ({count} in all)",
    ExceededLimit.DIGITS: "Numbers with more than {limit} digits were left out ({count} in all)",
}


def describe_excess(excess: ExceededLimit, limits: Limits, count: int = 1) -> str:
    """Describe an exceeded limit."""
    return _WHAT[excess].format(limit=getattr(limits, excess.value), count=count)


def remedy_for(excess: ExceededLimit) -> str:
    """Return the advice for reading more of the file."""
    return f"If you trust the file, add --trusted, or raise {excess.value} in [tool.traceadvisor.limits]."


def excess_notes(excesses: Counter[ExceededLimit], limits: Limits) -> tuple[HealthNote, ...]:
    """Return one note for each exceeded limit."""
    return tuple(
        HealthNote(
            f"limit-{excess.value.replace('_', '-')}",
            f"{describe_excess(excess, limits, count)}. {remedy_for(excess)}",
        )
        for excess, count in excesses.items()
        if count
    )
