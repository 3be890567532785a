"""Detects compilation, searches for the fastest algorithm, and garbage collection."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.names import name_mask, rows_named
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

_COMPILING = re.compile(r"^(?:dynamo|entire_frame_compile|backend_compile)$|\(dynamo_timed\)$")
"""Ranges that torch.compile records only while it compiles (torch._dynamo.utils.dynamo_timed)."""

_COLLECT = "<built-in function collect>"
"""The name of ``gc.collect`` in recordings. No other built-in function has this name."""

_EVENT_WAIT = re.compile(r"^(?:cuda|hip)EventSynchronize$")
_CONVOLUTION = re.compile(r"^aten::(?:cudnn|miopen)_convolution")


def compiling_rows(trace: Trace, tree: OperatorTree) -> Int64:
    """The rows of the outermost range of each compilation."""
    named = name_mask(trace.names, _COMPILING.search)
    compiles = named[trace.events.name_id[tree.rows]]
    inside = tree.parent != NONE
    inside[inside] = tree.nearest(compiles)[tree.parent[inside]] != NONE
    rows: Int64 = tree.rows[compiles & ~inside]
    return rows


def searching_rows(trace: Trace, tree: OperatorTree) -> Int64:
    """The rows of convolutions that search for an algorithm: only these wait for events, to time each attempt."""
    waits = rows_named(trace, Kind.RUNTIME, _EVENT_WAIT.match)
    around = tree.enclosing(trace.events.thread[waits].astype(np.int64), trace.events.start_ns[waits])
    rows: Int64 = tree.rows[np.unique(around[around != NONE])]
    is_convolution = name_mask(trace.names, _CONVOLUTION.match)
    return rows[is_convolution[trace.events.name_id[rows]]]


def collecting_spans(trace: Trace, thread: int) -> SpanSet:
    """The time of a thread in ``gc.collect``."""
    calls, named = trace.python_calls, name_mask(trace.names, lambda name: name == _COLLECT)
    rows = np.flatnonzero(named[calls.name_id] & (calls.thread == thread))
    return SpanSet.union_of(calls.start_ns[rows], calls.end_ns[rows])
