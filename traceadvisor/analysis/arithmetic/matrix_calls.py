"""The calls of operators that multiply matrices, each with the kernels that do its work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.arithmetic.flops import FORMULAS
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class MatrixCalls:
    """Calls, none inside another; arrays of shape ``(n,)`` and, for kernels, ``(m,)``."""

    outer: Int64
    """Position of the call in the operator tree, ascending: it holds the settings."""

    inner: Int64
    """Position of the innermost operator of its kind within it, which is given what is multiplied: under autocast the
    outer one is given float32, casts it and calls itself again."""

    kernel_rows: Int64
    """Rows of the event table: the kernels launched by the innermost operators; casts are not among them."""

    kernel_call: Int64
    """For each kernel, its call: a position in the arrays above."""


def matrix_calls(trace: Trace, launches: Launches, tree: OperatorTree) -> MatrixCalls:
    """Find the calls and what they launched."""
    named = name_mask(trace.names, lambda name: name in FORMULAS)
    chosen = named[trace.events.name_id[tree.rows]]
    nearest = np.append(tree.nearest(chosen), NONE)
    above = np.where(chosen, nearest[tree.parent], NONE)
    holds_another = np.zeros(chosen.size, dtype=np.bool_)
    holds_another[above[above != NONE]] = True
    outer = _climbed(above)
    rows, innermost = _kernels(trace, launches, tree, nearest, ~holds_another)
    calls = np.flatnonzero(chosen & (above == NONE))
    leaves = np.flatnonzero(chosen & ~holds_another)
    _, first = np.unique(outer[leaves], return_index=True)
    return MatrixCalls(calls, leaves[first], rows, np.searchsorted(calls, outer[innermost]))


def _climbed(above: Int64) -> Int64:
    """For each operator, the outermost one that is reached by going up."""
    outer = np.arange(above.size)
    while (open_ := above[outer] != NONE).any():
        outer[open_] = above[outer[open_]]
    return outer


def _kernels(
    trace: Trace, launches: Launches, tree: OperatorTree, nearest: Int64, is_innermost: Mask
) -> tuple[Int64, Int64]:
    """Kernels launched within innermost operators, and the position of each one's operator."""
    events = trace.events
    launched = (events.kind[launches.work_rows] == Kind.KERNEL) & (launches.call_rows != NONE)
    rows, calls = launches.work_rows[launched], launches.call_rows[launched]
    operator = nearest[tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])]
    counted = np.append(is_innermost, False)[operator] & (operator != NONE)  # a value, not a flag
    return rows[counted], operator[counted]
