"""Backward operators and the forward operators they belong to."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_with_prefix
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.once import once
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

MOST_THREADS = 8
"""Most forward threads that are distinguished: those with the most operators. Usually there is one."""

BETWEEN_NODES_NS = 20_000
"""Longest time between two nodes in which the engine takes up the next one, and frees what the last one kept: usually
1 to 5 us, recorded or not."""


@once
def backward_rows(trace: Trace) -> Int64:
    """Return the rows of backward nodes: those of the autograd engine, and those with a recorded forward thread."""
    chosen = np.zeros(len(trace.events), dtype=np.bool_)
    chosen[rows_with_prefix(trace, Kind.OPERATOR, BACKWARD_PREFIX)] = True
    chosen[trace.details.forward_thread.rows] = True
    return np.flatnonzero(chosen)


def forward_operators(trace: Trace, tree: OperatorTree) -> tuple[Int64, Int64]:
    """Return the backward node around each operator, and the forward operator of that node.

    Both share a sequence number, which counts per forward thread. Several operators can have one number: the last of
    them made the node (``torch/csrc/profiler/collection.cpp`` links the same one). Torch numbers threads
    differently than the operating system: the forward thread is the one with the most matching numbers.

    Returns:
        Positions in the tree, both of shape ``(n,)``; NONE without a node or a recorded forward operator.
    """
    nothing = np.full(tree.rows.size, NONE, dtype=np.int64)
    sequence = trace.details.sequence.at(tree.rows, np.int64(NONE))
    caller = trace.details.forward_thread.at(tree.rows, np.int64(NONE))
    is_node = np.zeros(len(trace.events), dtype=np.bool_)
    is_node[backward_rows(trace)] = True
    nodes = np.flatnonzero((sequence != NONE) & is_node[tree.rows])
    makers = np.flatnonzero((sequence != NONE) & ~is_node[tree.rows])
    if not nodes.size or not makers.size:
        return nothing, nothing
    by_thread = [makers[places] for places in _largest(positions_by(tree.thread[makers]))]
    forward = nothing.copy()
    for places in _largest(positions_by(caller[nodes])):
        called = nodes[places]
        found = [_made_by(tree, sequence, called, mine) for mine in by_thread]
        forward[called] = max(found, key=lambda one: int((one != NONE).sum()))
    linked = tree.nearest(forward != NONE)
    return linked, np.append(forward, NONE)[linked]


def with_backward(
    trace: Trace, tree: OperatorTree, spans: SpanSet, links: tuple[Int64, Int64], windows: SpanSet
) -> SpanSet:
    """Return some time of the forward pass, and when the backward pass goes back through operators that began in it.

    ``links``: of :func:`forward_operators`.
    """
    nodes, forward = links
    linked = np.flatnonzero(forward != NONE)
    passes = np.unique(nodes[linked[spans.contains(tree.start_ns[forward[linked]])]])
    return (spans | spans_of_nodes(trace, tree, passes)) & windows


def spans_of_nodes(trace: Trace, tree: OperatorTree, nodes: Int64) -> SpanSet:
    """Return when some nodes of the backward pass run, each up to the next node; ``nodes``: positions in the tree."""
    ends_ns, starts_ns = tree.end_ns[nodes], np.sort(trace.events.start_ns[backward_rows(trace)])
    next_ns = np.append(starts_ns, np.iinfo(np.int64).max)[starts_ns.searchsorted(ends_ns)]
    return SpanSet.union_of(tree.start_ns[nodes], np.where(next_ns - ends_ns <= BETWEEN_NODES_NS, next_ns, ends_ns))


def _largest(groups: dict[int, Int64]) -> list[Int64]:
    return sorted(groups.values(), key=lambda places: -places.size)[:MOST_THREADS]


def _made_by(tree: OperatorTree, sequence: Int64, nodes: Int64, makers: Int64) -> Int64:
    """Return the last operator of one thread with each node's number that started before the node; NONE without one."""
    order = np.lexsort((tree.start_ns[makers], sequence[makers]))
    keys, starts = sequence[makers][order], tree.start_ns[makers][order]
    numbers, first, count = np.unique(keys, return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(numbers, sequence[nodes]), numbers.size - 1)
    last = first[place] + count[place] - 1
    fits = (numbers[place] == sequence[nodes]) & (starts[last] < tree.start_ns[nodes])
    return np.where(fits, makers[order][last], NONE)
