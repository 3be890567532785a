"""The user's own line of code behind an event, from the recorded Python stacks of both generations."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.library_files import is_library
from traceadvisor.analysis.operator_tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Location
from traceadvisor.model.trace import Trace

_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)$")


def user_frame(frames: list[str], own_code: frozenset[str] | None = None) -> Location | None:
    """The innermost frame that belongs to the user's code, never to torch or the standard library.

    Args:
        frames: ``file.py(line): function``, innermost first.
        own_code: :attr:`Trace.own_code`.
    """
    for frame in frames:
        match = _FRAME.match(frame.strip())
        if match and not is_library(match["file"], own_code):
            return Location(match["file"], int(match["line"]), match["function"])
    return None


def location_of_call(trace: Trace, tree: OperatorTree, row: int) -> Location | None:
    """The user's line behind an event; None where no stacks were recorded.

    Current recordings hold the Python calls themselves; those of 2021 hold a stack at each operator, so there the
    innermost enclosing operator that has one is asked.
    """
    thread, instant = int(trace.events.thread[row]), int(trace.events.start_ns[row])
    return (
        _from_stack(trace, row)
        or _from_operators(trace, tree, thread, instant)
        or _from_python_calls(trace, thread, instant)
    )


def first_location(trace: Trace, tree: OperatorTree, rows: Int64) -> Location | None:
    """The user's line behind the first of some events that has one."""
    found = (location_of_call(trace, tree, row) for row in rows.tolist())
    return next((location for location in found if location), None)


def _from_stack(trace: Trace, row: int) -> Location | None:
    found = int(trace.details.stack_id.at(np.array([row]), np.int32(NONE))[0])
    return user_frame(trace.texts[found].split(";"), trace.own_code) if found != NONE else None


def _from_operators(trace: Trace, tree: OperatorTree, thread: int, instant_ns: int) -> Location | None:
    at = int(tree.enclosing(np.array([thread]), np.array([instant_ns]))[0])
    while at != NONE:
        location = _from_stack(trace, int(tree.rows[at]))
        if location:
            return location
        at = int(tree.parent[at])
    return None


def _from_python_calls(trace: Trace, thread: int, instant_ns: int) -> Location | None:
    calls = trace.python_calls
    started = int(np.searchsorted(calls.start_ns, instant_ns, side="right"))
    inside = (calls.thread[:started] == thread) & (instant_ns < calls.end_ns[:started])
    rows = np.flatnonzero(inside)[::-1]
    location = user_frame([trace.names[calls.name_id[row]] for row in rows.tolist()], trace.own_code)
    return replace(location, is_call=False) if location else None
