"""Kernels that multiply no matrices: pointwise work, normalisation, reductions, copies made by kernels."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.flops import FORMULAS
from traceadvisor.analysis.launches import Launches
from traceadvisor.analysis.names import name_mask
from traceadvisor.analysis.operator_tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace

_MAY_MULTIPLY = re.compile(r"mm|mv|conv|att|rnn")
_IS_PLAIN = re.compile(r"^(aten::|triton_(poi|red|per|for)_)")
"""Operators of torch, and kernels that its compiler makes of pointwise work and reductions: their names are given in
``torch/_inductor/codegen/triton.py``."""


def plain_kernels(trace: Trace, launches: Launches, tree: OperatorTree, multiplying: Int64) -> Int64:
    """Rows, ascending, of kernels that are known to multiply nothing, for what launched them.

    What a CUDA graph replays, and what operators of other libraries do, is not known.

    Args:
        trace: the recording.
        launches: of one device.
        tree: of its operators.
        multiplying: rows of the kernels of matrix products, convolutions and attention.
    """
    events = trace.events
    others = (events.kind[launches.work_rows] == Kind.KERNEL) & (launches.call_rows != NONE)
    others &= ~np.isin(launches.work_rows, multiplying)
    rows, calls = launches.work_rows[others], launches.call_rows[others]
    named = events.name_id[tree.rows]
    plain = name_mask(trace.names, lambda name: bool(_IS_PLAIN.search(name)) and not _MAY_MULTIPLY.search(name))
    within = tree.nearest(name_mask(trace.names, lambda name: name in FORMULAS)[named]) != NONE
    owner = tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    return np.sort(rows[np.append(plain[named] | within, False)[owner]])  # a value, not a flag
