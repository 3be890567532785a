"""The user's own line of code behind an event, from the recorded Python stacks of both generations."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.model.findings import Location
from traceadvisor.model.trace import Trace

_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")
_LIBRARY = re.compile(
    r"site-packages[/\\]|dist-packages[/\\]|[/\\]lib[/\\]python\d|^<|^\.\.\.|^torch[/\\]|^(?:threading|runpy|contextlib|"
    r"functools|selectors|socket|multiprocessing[/\\].*|concurrent[/\\].*)\.py$|\.pyx$"
)


def user_frame(frames: list[str]) -> Location | None:
    """The innermost frame that belongs to the user's code, never to torch or the standard library.

    Args:
        frames: ``file.py(line): function``, innermost first.
    """
    for frame in frames:
        match = _FRAME.match(frame.strip())
        if match and not _LIBRARY.search(match["file"]):
            return Location(match["file"], int(match["line"]), match["function"])
    return None


def location_of_stack(trace: Trace, row: int) -> Location | None:
    """The user's frame of an event that carries its own call stack; None where it has none."""
    found = trace.details.stack_id.at(np.array([row]), np.int32(-1))[0]
    return user_frame(trace.texts[found].split(";")) if found >= 0 else None


def location_at(trace: Trace, thread: int, instant_ns: int) -> Location | None:
    """The user's frame among the Python calls that a thread was in at an instant; None where none were recorded."""
    calls = trace.python_calls
    inside = (calls.thread == thread) & (calls.start_ns <= instant_ns) & (instant_ns < calls.end_ns)
    rows = np.flatnonzero(inside)[::-1]
    return user_frame([trace.names[calls.name_id[row]] for row in rows])
