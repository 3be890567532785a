"""How many loops of the script hold the line that runs."""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from types import CodeType, FrameType

_NOT_COUNTED = ("torch.", "traceadvisor.")
"""Modules whose own loops, such as those over hooks, are none of the training."""

_RETURNS = "NO_INTERRUPT"
"""In the name of jumps back from handlers of errors, and of those that await."""


def loops_around() -> int:
    """Loops around the calls in progress, outwards to the module that is run: what runs that is no part of it."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None:
        if not f"{frame.f_globals.get('__name__')}.".startswith(_NOT_COUNTED):
            count += sum(first <= frame.f_lasti <= last for first, last in _loops(frame.f_code))
        frame = None if frame.f_code.co_name == "<module>" else frame.f_back
    return count


@lru_cache(32)
def _loops(code: CodeType) -> tuple[tuple[int, int], ...]:
    """First and last instruction of each loop."""
    ends: dict[int, int] = {}
    for one in dis.get_instructions(code):
        is_jump = one.opcode in dis.hasjrel or one.opcode in dis.hasjabs
        if is_jump and one.argval <= one.offset and _RETURNS not in one.opname:
            ends[one.argval] = one.offset
    return tuple(ends.items())
