"""Steps that are no training steps among those that are."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.lost_records import position_at
from traceadvisor.analysis.marks import Mark
from traceadvisor.analysis.names import rows_with_prefix
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace

BACKWARD = "autograd::engine::evaluate_function"


def steps_of_another_kind(trace: Trace, marks: tuple[Mark, ...]) -> list[int]:
    """Positions of steps without a backward pass, where most steps have one: validation, for example.

    Where most have none it may be hidden (a captured graph has no operators), and nothing is told apart.
    """
    rows = rows_with_prefix(trace, Kind.OPERATOR, BACKWARD)
    holders = position_at([mark.span for mark in marks], trace.events.start_ns[rows])
    without = np.bincount(holders[holders != NONE], minlength=len(marks)) == 0
    return np.flatnonzero(without).tolist() if 2 * without.sum() < len(marks) else []
