"""The training thread of a program by JAX, TensorFlow or PyTorch/XLA, and its calls of compiled functions.

The host threads of such a profile hold whatever the program annotates, the framework's own calls and, if recorded,
Python calls.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from traceadvisor.analysis.operators.innermost import are_outermost
from traceadvisor.analysis.operators.names import rows_named, rows_with_prefix
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.once import once
from traceadvisor.model.trace import Trace

FEWEST_CALLS = 3
"""Calls of a compiled function that may be the step."""

_COMPILED = re.compile(r"(?:PjitFunction|tf\.function)\(")


def xla_rows(trace: Trace) -> Int64:
    """Return the operators that XLA runs on threads of its own."""
    events = trace.events
    rows = events.rows(Kind.OPERATOR)
    of_xla = [number for number, one in enumerate(trace.threads) if (one.name or "").startswith("tf_XLA")]
    own: Int64 = rows[np.isin(events.thread[rows], of_xla)] if of_xla else rows[:0]
    return own


@once
def compiled_calls(trace: Trace) -> Int64:
    """Return the calls of the compiled function that takes most of the time, if there are several; else none."""
    events = trace.events
    rows = rows_named(trace, Kind.ANNOTATION, _COMPILED.match)
    if not rows.size:
        return rows
    rows = rows[are_outermost(events.start_ns[rows], events.end_ns[rows])]  # a call is recorded twice, nested
    counts = Counter(events.name_id[rows].tolist())
    often = [name for name, count in counts.items() if count >= FEWEST_CALLS]
    if not often:
        return rows[:0]
    longest = max(often, key=lambda name: int(events.duration_ns[rows[events.name_id[rows] == name]].sum()))
    calls: Int64 = rows[events.name_id[rows] == longest]
    return calls


def main_thread(trace: Trace) -> int:
    """Return the thread with step marks, else with calls of the compiled step, else with most annotated time."""
    events = trace.events
    marks = rows_with_prefix(trace, Kind.ANNOTATION, "ProfilerStep#")
    for rows in (marks, compiled_calls(trace)):
        if rows.size:
            return int(events.thread[rows[0]])
    calls, rows = trace.python_calls, events.rows(Kind.ANNOTATION)
    threads = np.append(calls.thread, events.thread[rows])
    if not threads.size:
        return NONE
    lengths = np.append(calls.end_ns - calls.start_ns, events.duration_ns[rows])
    return int(np.bincount(threads, weights=lengths).argmax())
