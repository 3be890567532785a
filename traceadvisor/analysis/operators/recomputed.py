"""Forward operators that run again in the backward pass: activation checkpointing, or a function that does the same."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.forward import backward_rows
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

LEAST_OPERATORS = 4
"""Operators of a recomputed block. Nodes of a second backward pass (``create_graph=True``) have fewer."""

LEAST_KNOWN_SHARE = 0.9
"""Share of neighbouring operators in a block that are neighbours in the forward pass too. A block may begin and end in
the middle, and torch saves and restores the state of random numbers in between."""

_AGAIN = re.compile(r".*torch/utils/checkpoint\.py\(\d+\): recompute_fn$")

REENTRANT = "CheckpointFunctionBackward"
"""Node of ``checkpoint(use_reentrant=True)``, which does nothing but recompute."""


@frozen(eq=False)
class Recomputed:
    """Blocks that are recomputed, and their operators."""

    operators: Int64
    """Rows of the outermost operators, shape ``(n,)``."""

    block: Int64
    """The block of each operator, 0 for the first, shape ``(n,)``."""

    starts_ns: Int64
    """Ends of what runs before the blocks, shape ``(m,)``: the code that calls a block again belongs to it."""

    ends_ns: Int64
    """Starts of what runs after them in the same node; ends of the blocks if nothing does."""

    threads: Int64

    @property
    def spans(self) -> SpanSet:
        """Host time of all blocks."""
        return SpanSet.union_of(self.starts_ns, self.ends_ns)

    def kept_bytes(self, trace: Trace, device: int) -> Int64:
        """Memory of a device that is in use after each block and was not before it, shape ``(m,)``."""
        memory = trace.memory
        result = np.zeros(self.starts_ns.size, dtype=np.int64)
        for place, (start_ns, end_ns, thread) in enumerate(
            zip(self.starts_ns.tolist(), self.ends_ns.tolist(), self.threads.tolist(), strict=True)
        ):
            first, last = np.searchsorted(memory.time_ns, (start_ns, end_ns))
            mine = (memory.device[first:last] == device) & (memory.thread[first:last] == thread)
            result[place] = memory.changed_bytes[first:last][mine].sum()
        return result


def recomputed(trace: Trace, tree: OperatorTree) -> Recomputed:
    """Return the operators that run with gradients enabled inside a backward node, in the order of the forward pass.

    Torch numbers operators that run with gradients enabled. An ordinary backward pass runs without.
    """
    backward = backward_rows(trace)
    if not backward.size:
        return Recomputed(*(np.empty(0, dtype=np.int64) for _ in range(5)))
    position = np.arange(tree.rows.size)
    is_node = np.isin(tree.rows, backward)
    node = tree.nearest(is_node)
    is_numbered = trace.details.sequence.at(tree.rows, np.int64(NONE)) != NONE
    inside = (node != NONE) & (tree.parent == node)
    counted = np.flatnonzero(inside & is_numbered & ~is_node)
    first, last = np.full(position.size, position.size), np.full(position.size, NONE)
    np.minimum.at(first, node[counted], counted)
    np.maximum.at(last, node[counted], counted)
    chosen = np.flatnonzero(inside & ~is_node & (position >= first[node]) & (position <= last[node]))
    if chosen.size:
        numbers = np.bincount(node[counted], minlength=position.size)
        known = _known_share(trace, tree, node == NONE, chosen)
        names = np.array([REENTRANT in name for name in trace.names], dtype=np.bool_)
        is_block = (numbers >= LEAST_OPERATORS) & (known >= LEAST_KNOWN_SHARE)
        is_block |= (numbers > 0) & (names[trace.events.name_id[tree.rows]] | _holds_checkpoint(trace, tree))
        chosen = chosen[is_block[node[chosen]]]
    blocks, block = np.unique(node[chosen], return_inverse=True)
    around = [_around(tree, node, first[node], last[node]) for node in blocks.tolist()]
    starts_ns, ends_ns = np.array(around, dtype=np.int64).reshape(-1, 2).T
    return Recomputed(tree.rows[chosen], block, starts_ns, ends_ns, tree.thread[blocks])


def _around(tree: OperatorTree, node: int, first: int, last: int) -> tuple[int, int]:
    """Return the end of what runs in a node before some of its children, and the start of what runs after them."""
    before = int(tree.end_ns[node + 1 : first].max(initial=tree.start_ns[node]))
    later = last + 1
    while later < tree.rows.size and tree.parent[later] >= last:
        later += 1
    is_sibling = later < tree.rows.size and tree.parent[later] == node
    return before, int(tree.start_ns[later] if is_sibling else tree.end_ns[last])


def _holds_checkpoint(trace: Trace, tree: OperatorTree) -> Mask:
    """Return whether torch's checkpointing computes a block again within each operator, by recorded Python calls."""
    calls = trace.python_calls
    is_again = np.array([bool(_AGAIN.match(name)) for name in trace.names], dtype=np.bool_)
    found = np.flatnonzero(is_again[calls.name_id]) if calls.name_id.size else calls.name_id
    starts_ns = np.sort(calls.start_ns[found])
    holds: Mask = np.searchsorted(starts_ns, tree.start_ns) < np.searchsorted(starts_ns, tree.end_ns)
    return holds


def _known_share(trace: Trace, tree: OperatorTree, is_forward: Mask, chosen: Int64) -> Float64:
    """Return, for each operator, the share of neighbours among its chosen children that the forward pass has too."""
    names, dims = trace.events.name_id[tree.rows], trace.details.dims_id.at(tree.rows, np.int32(NONE))
    kinds = np.unique(names.astype(np.int64) * (int(dims.max()) + 2) + dims + 1, return_inverse=True)[1].astype(
        np.int64
    )
    forward = np.flatnonzero(is_forward)
    forward = forward[np.argsort(tree.parent[forward], kind="stable")]
    (there, _), (here, parents) = (_neighbours(kinds, tree.parent, places) for places in (forward, chosen))
    found = np.bincount(parents, weights=np.isin(here, there), minlength=tree.rows.size)
    share: Float64 = found / np.maximum(np.bincount(parents, minlength=tree.rows.size), 1)
    return share


def _neighbours(kinds: Int64, parent: Int64, places: Int64) -> tuple[Int64, Int64]:
    """Return a number for each two neighbours with one parent, by their kinds, and that parent."""
    together = parent[places[1:]] == parent[places[:-1]]
    pairs = kinds[places[:-1]] * (kinds.max() + 1) + kinds[places[1:]]
    return pairs[together], parent[places[1:]][together]
