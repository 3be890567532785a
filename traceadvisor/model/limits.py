"""How much of an input is read before it is taken for an attempt to use up memory or time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from traceadvisor.errors import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """What is beyond a limit is left out, and said; at the first two reading ends.

    Raises:
        UsageError: a limit is not positive.
    """

    inflation_ratio: int = 200
    """Bytes that a byte of a gzipped file may become. Recordings become 18 to 30, a gzip bomb a thousand."""

    inflated_bytes: int = 64 << 30
    """Of one file, unpacked: 150 million events."""

    event_bytes: int = 64 << 20
    """Of one event, or of all that stands before the events: it is held in memory while it is read."""

    member_bytes: int = 4 << 20
    """Of what stands beside the events, all members together. torch writes some 20 KB; the names of members tell what a
    file is, so those of larger ones are kept."""

    text_length: int = 20_000
    """Characters of a name, a call stack or a list of types; of longer ones the beginning is kept."""

    nesting_depth: int = 100
    """Lists and objects within one another. The deepest that torch writes are five."""

    integer_digits: int = 400
    """Of a whole number that stands where none is expected."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise UsageError(f"The limit {field.name} must be at least 1, not {getattr(self, field.name)}.")


LIMITS = Limits()
