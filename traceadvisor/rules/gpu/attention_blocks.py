"""Detection of unfused attention: a softmax between two batched matmuls, and the same in the backward pass.

Operators show it; where a CUDA graph launched the kernels, their names do.
"""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.analysis.arithmetic.flops import FORMULAS
from traceadvisor.analysis.arithmetic.kernel_work import PLAIN
from traceadvisor.analysis.arithmetic.work import Kind as WorkKind
from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

PRODUCTS = frozenset({"aten::bmm", "aten::baddbmm"})
AROUND = {"aten::_softmax": 1, "aten::_softmax_backward_data": 2}
"""Number of matmuls before and after: one each forward; two each backward, for the gradients of both factors."""

_SOFTMAX = re.compile(
    r"softmax_warp_(?:forward|backward)<(?:[^<>,]{0,100},){4} ?false"
    r"|cunn_SoftMax\w{0,60}<.{0,400}(?<!Log)SoftMax(?:Forward|Backward)Epilogue"
    r"|triton_(?:per|red)_fused_(?!\w{0,300}log_softmax)\w{0,300}_softmax"
)
"""Softmax kernels of torch, but not logarithms of softmax, which losses use: ``aten/src/ATen/native/cuda/SoftMax.cu``
and ``PersistentSoftmax.cuh``, whose fifth argument is ``is_log_softmax``."""

_BACKWARD = re.compile(r"backward", re.IGNORECASE)

MOST_BETWEEN = 6
"""Kernels between a matmul and the softmax of one block: scale, mask, dropout and casts."""


@frozen(eq=False)
class AttentionBlocks:
    """Attention blocks and their kernels."""

    softmaxes: Int64
    """Rows of the event table: the softmax operator of each block, or its kernel."""

    kernels: Int64
    """Rows of the event table, ascending: launched between the start of the first matmul and the end of the last."""


def attention_blocks(trace: Trace, launches: Launches, tree: OperatorTree, windows: SpanSet) -> AttentionBlocks:
    """Return the blocks whose kernels run in some windows; they contain no other matrix operation."""
    events = trace.events
    first, middle, last = _blocks(trace, tree).T
    if not first.size:
        return AttentionBlocks(first, first)
    is_kernel = (events.kind[launches.work_rows] == Kind.KERNEL) & (launches.call_rows != NONE)
    is_kernel &= windows.contains(events.start_ns[launches.work_rows])
    rows, calls = launches.work_rows[is_kernel], launches.call_rows[is_kernel]
    order = np.lexsort((events.start_ns[calls], events.thread[calls]))
    rows, calls = rows[order], calls[order]
    thread, called_ns = events.thread[calls].astype(np.int64), events.start_ns[calls]
    one, beyond = np.zeros_like(first), np.zeros_like(first)
    for owner, mine in positions_by(tree.thread[first]).items():
        begin, end = np.searchsorted(thread, [owner, owner + 1])
        one[mine] = begin + np.searchsorted(called_ns[begin:end], tree.start_ns[first[mine]])
        beyond[mine] = begin + np.searchsorted(called_ns[begin:end], tree.end_ns[last[mine]])
    filled = one < beyond
    entered = np.bincount(one[filled], minlength=rows.size + 1)  # blocks that begin at a kernel
    entered -= np.bincount(beyond[filled], minlength=rows.size + 1)  # less those that end before it
    return AttentionBlocks(tree.rows[middle[filled]], np.sort(rows[np.cumsum(entered)[:-1] > 0]))


def blocks_by_name(work: DeviceWork) -> AttentionBlocks:
    """Return the blocks among kernels that no recorded operator launched, by the order of kernels on their stream.

    Between a softmax and its matmuls only other plain kernels run.
    """
    events = work.trace.events
    chosen = ~work.has_operator
    if not chosen.any():
        return AttentionBlocks(work.kernels[:0], work.kernels[:0])
    order = np.lexsort((events.start_ns[work.kernels], events.stream[work.kernels]))
    order = order[chosen[order]]
    kernels = work.by_kernel
    rows, stream = kernels.rows[order], events.stream[kernels.rows[order]].astype(np.int64)
    is_product = kernels.is_kind(WorkKind.MATMUL)[order]
    is_plain = (kernels.kind == PLAIN)[order]
    names = events.name_id[rows]
    is_softmax = name_mask(work.trace.names, _SOFTMAX.search)[names]
    is_backward = name_mask(work.trace.names, _BACKWARD.search)[names]
    softmaxes: list[int] = []
    inside = np.zeros(rows.size, dtype=np.bool_)
    for at in np.flatnonzero(is_softmax).tolist():
        count = 2 if is_backward[at] else 1
        first = _reach(at, -1, count, stream, is_product, is_plain)
        last = _reach(at, 1, count, stream, is_product, is_plain)
        if first is not None and last is not None:
            softmaxes.append(int(rows[at]))
            inside[first : last + 1] = True
    return AttentionBlocks(np.array(softmaxes, dtype=np.int64), np.sort(rows[inside]))


def _reach(at: int, step: int, count: int, stream: Int64, is_product: Mask, is_plain: Mask) -> int | None:  # noqa: PLR0913, PLR0917  # arrays of one stream's kernels
    """Return the position of the matmul that ends a block on one side; None if something else comes first."""
    position, passed = at, 0
    while count:
        position += step
        if not 0 <= position < stream.size or stream[position] != stream[at]:
            return None
        if is_product[position]:
            count, passed = count - 1, 0
        elif not is_plain[position] or (passed := passed + 1) > MOST_BETWEEN:
            return None
    return position


def _blocks(trace: Trace, tree: OperatorTree) -> Int64:
    """Return the positions in the tree of each block's first matmul, softmax and last matmul; shape ``(n, 3)``."""
    names = trace.events.name_id[tree.rows]
    marked = np.flatnonzero(name_mask(trace.names, lambda name: name in FORMULAS or name in AROUND)[names])
    is_product = np.append(name_mask(trace.names, PRODUCTS.__contains__)[names[marked]], False)
    reach = np.array([AROUND.get(name, 0) for name in trace.names], dtype=np.int64)[names[marked]]
    at = np.flatnonzero(reach)
    for away in range(1, max(AROUND.values()) + 1):  # beyond either end of the array is what is no product
        beside = is_product[np.maximum(at - away, -1)] & is_product[np.minimum(at + away, marked.size)]
        at = at[(reach[at] < away) | beside]
    first, last = marked[at - reach[at]], marked[at + reach[at]]
    is_one_thread = tree.thread[first] == tree.thread[last]
    found: Int64 = np.stack((first, marked[at], last), axis=1)[is_one_thread]
    return found
