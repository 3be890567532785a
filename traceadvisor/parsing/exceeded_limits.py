"""What goes beyond the limits of an input, in words."""

from __future__ import annotations

from collections import Counter
from enum import Enum

from traceadvisor.model.health import HealthNote
from traceadvisor.model.limits import Limits


class ExceededLimit(Enum):
    """What went beyond a limit; the value is the limit's name."""

    RATIO = "inflation_ratio"
    BYTES = "inflated_bytes"
    EVENT = "event_bytes"
    MEMBER = "member_bytes"
    TEXT = "text_length"
    DEPTH = "nesting_depth"
    DIGITS = "integer_digits"


ENDS_READING = frozenset({ExceededLimit.RATIO, ExceededLimit.BYTES, ExceededLimit.EVENT})
"""Behind these there may be more events."""

_WHAT = {
    ExceededLimit.RATIO: "The file unpacks to more than {limit} times its size; "
    "what stands behind that point was not read",
    ExceededLimit.BYTES: "The file unpacks to more than {limit} bytes; what stands behind them was not read",
    ExceededLimit.EVENT: "What is larger than {limit} bytes in one piece was left out ({count} in all)",
    ExceededLimit.MEMBER: "Of what stands beside the events {limit} bytes were read at most, "
    "so {count} of its members were left out",
    ExceededLimit.TEXT: "Names and other texts longer than {limit} characters were cut ({count} in all)",
    ExceededLimit.DEPTH: "What is nested deeper than {limit} levels was left out ({count} in all)",
    ExceededLimit.DIGITS: "Numbers of more than {limit} digits were left out ({count} in all)",
}


def option_of(excess: ExceededLimit) -> str:
    """The option of `traceadvisor report` that raises a limit."""
    return f"--max-{excess.value.replace('_', '-')}"


def describe_excess(excess: ExceededLimit, limits: Limits, count: int = 1) -> str:
    """What went beyond a limit, in words."""
    return _WHAT[excess].format(limit=getattr(limits, excess.value), count=count)


def remedy_for(excess: ExceededLimit) -> str:
    """How to read more of the file."""
    return f"If you trust the file, raise the limit with {option_of(excess)}."


def excess_notes(excesses: Counter[ExceededLimit], limits: Limits) -> tuple[HealthNote, ...]:
    """A note for each limit that something went beyond."""
    return tuple(
        HealthNote(
            f"limit-{excess.value.replace('_', '-')}",
            f"{describe_excess(excess, limits, count)}. {remedy_for(excess)}",
        )
        for excess, count in excesses.items()
        if count
    )
