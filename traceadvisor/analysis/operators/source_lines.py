"""The user's source line behind an event, from recorded Python stacks."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.source_files import FRAME, is_library
from traceadvisor.analysis.operators.stacks import Stacks
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.findings import Location
from traceadvisor.model.trace import Trace


def user_frame(frames: list[str], own_code: frozenset[str] | None = None) -> Location | None:
    """Return the innermost frame of user code, never of torch or the standard library.

    Args:
        frames: ``file.py(line): function``, innermost first.
        own_code: :attr:`Trace.own_code`.
    """
    for frame in frames:
        match = FRAME.match(frame.strip())
        if match and not is_library(match["file"], own_code):
            return Location(match["file"], int(match["line"]), match["function"])
    return None


def locations_of(trace: Trace, tree: OperatorTree, rows: Int64) -> list[Location | None]:
    """Return the user's innermost line behind each event, and the frame that owns its time; None without stacks.

    Args:
        trace: the recording.
        tree: its operators.
        rows: rows of the event table, shape ``(n,)``.
    """
    return Stacks(trace, tree).locations(rows)


def location_of_call(trace: Trace, tree: OperatorTree, row: int) -> Location | None:
    """Return the user's line behind one event; None without stacks."""
    return locations_of(trace, tree, np.array([row]))[0]
