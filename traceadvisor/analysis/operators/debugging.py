"""Signs of debugging options that were left on."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

FEWEST = 20
"""Fewest launches, or backward nodes, for a meaningful share."""

ACCUMULATION = "AccumulateGrad"
CHECK = "aten::isnan"
CHECKS = (CHECK, "aten::_is_any_true", "aten::any", "aten::item")
"""Operators that autograd's anomaly mode runs on each node's result (``torch/csrc/autograd/engine.cpp``)."""

_KEEPS_STACK = re.compile(r"\btraceback\.py\(\d+\): format_stack$")
"""Python's own function, or that of ``torch/fx/traceback.py`` around it."""


def blocking_launch_share(trace: Trace, launches: Launches, windows: SpanSet) -> float | None:
    """Return the share of kernel launches that returned after their kernel ended; None if there are too few.

    A non-blocking launch returns within microseconds, usually before its kernel begins.
    """
    events = trace.events
    is_kernel = (events.kind[launches.work_rows] == Kind.KERNEL) & (launches.call_rows != NONE)
    kernels, calls = launches.work_rows[is_kernel], launches.call_rows[is_kernel]
    inside = windows.contains(events.start_ns[calls])
    if int(inside.sum()) < FEWEST:
        return None
    return float(np.mean(events.end_ns[kernels[inside]] <= events.end_ns[calls[inside]]))


def checked_node_share(trace: Trace, tree: OperatorTree) -> float | None:
    """Return the share of backward nodes whose result was checked for NaN; None if there are too few."""
    names = trace.events.name_id[tree.rows]
    is_node = name_mask(trace.names, lambda name: name.startswith(BACKWARD_PREFIX) and ACCUMULATION not in name)[names]
    is_check = name_mask(trace.names, lambda name: name == CHECK)[names]
    if int(is_node.sum()) < FEWEST:
        return None
    parents = tree.parent[is_check]
    checked = np.unique(parents[parents != NONE])
    return float(is_node[checked].sum() / is_node.sum())


def check_rows(trace: Trace, tree: OperatorTree) -> Int64:
    """Return the rows of the NaN checks: operators right inside of backward nodes."""
    names = trace.events.name_id[tree.rows]
    is_node = name_mask(trace.names, lambda name: name.startswith(BACKWARD_PREFIX))[names]
    is_check = name_mask(trace.names, CHECKS.__contains__)[names]
    directly = np.zeros(is_check.size, dtype=np.bool_)
    has_parent = tree.parent != NONE
    directly[has_parent] = is_node[tree.parent[has_parent]]
    return tree.rows[is_check & directly]


def check_spans(trace: Trace, tree: OperatorTree) -> SpanSet:
    """Return the host time of the NaN checks."""
    return trace.events.spans(check_rows(trace, tree))


def stack_spans(trace: Trace, tree: OperatorTree) -> SpanSet:
    """Return the time in which anomaly mode keeps Python stacks; empty if no Python calls were recorded.

    Each new node of the autograd graph keeps one (``torch/csrc/autograd/python_anomaly_mode.cpp``). This is the first
    that its operator does, and it may wait for the interpreter before: the time counts from the operator's start.
    """
    events, calls = trace.events, trace.python_calls
    named = name_mask(trace.names, _KEEPS_STACK.search)
    rows = np.flatnonzero(named[calls.name_id])
    starts_ns = calls.start_ns[rows]
    around = tree.enclosing(calls.thread[rows].astype(np.int64), starts_ns)
    inside = around != NONE
    begun_ns = starts_ns.copy()
    begun_ns[inside] = events.start_ns[tree.rows[around[inside]]]
    return SpanSet.union_of(begun_ns, calls.end_ns[rows])
