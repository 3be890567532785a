"""Limits on the input, against files made to use up memory or time."""

from __future__ import annotations

from dataclasses import fields

from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.system.remote import LONGEST_S


@frozen
class Limits:
    """Input beyond a limit is left out and reported; the first two limits end reading.

    Raises:
        UsageError: a limit is not positive.
    """

    inflation_ratio: int = 200
    """Largest decompression ratio. Recordings have 18 to 30, a gzip bomb a thousand."""

    inflated_bytes: int = 64 << 30
    """Largest file after decompression: 150 million events."""

    event_bytes: int = 64 << 20
    """Largest event, and largest part before the events: both are held in memory."""

    member_bytes: int = 4 << 20
    """Most bytes of all members beside the events. torch writes about 20 KB. Names of larger members are kept: they
    identify the file."""

    text_length: int = 20_000
    """Longest name, call stack or type list in characters; longer ones are cut."""

    snapshot_bytes: int = 2 << 30
    """Largest memory snapshot after decompression; it is held in memory."""

    nesting_depth: int = 100
    """Deepest nesting of lists and objects. torch nests up to five."""

    integer_digits: int = 400
    """Most digits of an integer where none is expected."""

    ranks: int = 2_048
    """Most ranks of a capture."""

    remote_seconds: int = LONGEST_S
    """Longest time that reading one file elsewhere takes. 2 GB at 1.2 MB/s take half an hour."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise UsageError(f"The limit {field.name} must be at least 1, not {getattr(self, field.name)}.")


LIMITS = Limits()

TRUSTED = Limits(**{each.name: 1_000 * getattr(LIMITS, each.name) for each in fields(Limits)})
"""For input that the user trusts: a thousand times as much of everything."""
