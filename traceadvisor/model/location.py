"""Places in code. Imports no numpy, because recording uses it inside the user's process."""

from __future__ import annotations

from dataclasses import field

from traceadvisor.frozen import frozen


@frozen
class Frame:
    """A recorded Python frame, of user code or of a library."""

    function: str
    file: str | None = None
    """None for a function written in C, such as ``sleep``."""

    line: int | None = None


@frozen
class Location:
    """A place in the user's code."""

    file: str
    line: int
    function: str | None = None
    is_call: bool = True
    """Whether the line is that of the call itself. Recordings by today's torch tell only which function made the call
    and where that function begins, or where it stood when recording began. Samples of a capture may tell the line."""

    is_backward: bool = False
    """Whether the time is that of the backward pass, and the place is that of the forward operator."""

    owner: Frame | None = field(default=None, compare=False)
    """The innermost frame, which owns the time, if it is not this place itself; often in a library."""
