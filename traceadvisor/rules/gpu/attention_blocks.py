"""Detection of unfused attention: a softmax between two batched matmuls, and the same in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.arithmetic.flops import FORMULAS
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

PRODUCTS = frozenset({"aten::bmm", "aten::baddbmm"})
AROUND = {"aten::_softmax": 1, "aten::_softmax_backward_data": 2}
"""Number of matmuls before and after: one each forward; two each backward, for the gradients of both factors."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionBlocks:
    """Attention blocks and their kernels."""

    softmaxes: Int64
    """Rows of the event table: the softmax operator of each block."""

    kernels: Int64
    """Rows of the event table, ascending: launched between the start of the first matmul and the end of the last."""


def attention_blocks(trace: Trace, launches: Launches, tree: OperatorTree, windows: SpanSet) -> AttentionBlocks:
    """Return the blocks whose kernels run in some windows; they contain no other matrix operation."""
    events = trace.events
    is_kernel = (events.kind[launches.work_rows] == Kind.KERNEL) & (launches.call_rows != NONE)
    is_kernel &= windows.contains(events.start_ns[launches.work_rows])
    rows, calls = launches.work_rows[is_kernel], launches.call_rows[is_kernel]
    softmaxes, inside = [], np.zeros(rows.size, dtype=np.bool_)
    for first, middle, last in _blocks(trace, tree):
        mine = (events.thread[calls] == tree.thread[first]) & (events.start_ns[calls] >= tree.start_ns[first])
        mine &= events.start_ns[calls] < tree.end_ns[last]
        if mine.any():
            softmaxes.append(int(tree.rows[middle]))
            inside |= mine
    return AttentionBlocks(np.array(softmaxes, dtype=np.int64), np.sort(rows[inside]))


def _blocks(trace: Trace, tree: OperatorTree) -> Iterator[tuple[int, int, int]]:
    """Yield the positions in the tree of each block's first matmul, softmax and last matmul."""
    named = name_mask(trace.names, lambda name: name in FORMULAS or name in AROUND)[trace.events.name_id[tree.rows]]
    marked = np.flatnonzero(named).tolist()
    names = [trace.names[trace.events.name_id[tree.rows[at]]] for at in marked]
    for position, name in enumerate(names):
        reach = AROUND.get(name, 0)
        before, after = names[max(position - reach, 0) : position], names[position + 1 : position + 1 + reach]
        if not reach or len(before) < reach or len(after) < reach or not PRODUCTS.issuperset(before + after):
            continue
        first, last = marked[position - reach], marked[position + reach]
        if tree.thread[first] == tree.thread[last]:
            yield first, marked[position], last
