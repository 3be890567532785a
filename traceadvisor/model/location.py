"""Places in the user's code. Imports no numpy, because recording uses it inside the user's process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's code."""

    file: str
    line: int
    function: str | None = None
    is_call: bool = True
    """Whether the line is that of the call itself. Recordings by today's torch tell only which function made the call
    and where that function begins, or where it stood when recording began."""
