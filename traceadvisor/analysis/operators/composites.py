"""Operators of torch that run many others natively, such as a recurrent layer over all time steps."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.forward import forward_operators
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet

FEWEST_INSIDE = 32
"""Operators inside one, from which a script would have called many: a convolution or an einsum has fewer than ten."""


def composite_spans(observation: Observation, tree: OperatorTree) -> SpanSet:
    """Return the time of such operators, and of the nodes of the backward pass that these made.

    No Python runs in them, so their parts are no operators of a loop of the script. A node lasts until the next one
    begins: the engine, which is native too, runs between them.
    """
    outermost = tree.outermost()
    composite = _is_composite(observation, tree)
    nodes, forward = forward_operators(observation.trace, tree)
    made = forward != NONE
    made[made] = composite[outermost[forward[made]]]
    native = composite.copy()
    native[outermost[nodes[made]]] = True
    tops = np.flatnonzero(tree.parent == NONE)
    ends_ns = tree.end_ns[tops].copy()
    in_backward = name_mask(observation.trace.names, lambda name: name.startswith(BACKWARD_PREFIX))
    is_node = in_backward[observation.trace.events.name_id[tree.rows[tops]]]
    follows = is_node[:-1] & is_node[1:] & (tree.thread[tops][:-1] == tree.thread[tops][1:])
    ends_ns[:-1][follows] = tree.start_ns[tops][1:][follows]
    chosen = native[tops]
    return SpanSet.union_of(tree.start_ns[tops][chosen], ends_ns[chosen])


def _is_composite(observation: Observation, tree: OperatorTree) -> Mask:
    """Return which operators are outermost, of torch, and run many others without a call of Python inside."""
    trace, calls = observation.trace, observation.trace.python_calls
    name_id = trace.events.name_id[tree.rows]
    is_torch = name_mask(trace.names, lambda name: name.startswith("aten::"))[name_id]
    inside = np.bincount(tree.outermost(), minlength=tree.rows.size) - 1
    found: Mask = is_torch & (tree.parent == NONE) & (inside >= FEWEST_INSIDE) & (tree.thread == observation.thread)
    called_ns = np.sort(calls.start_ns[calls.thread == observation.thread])
    first, last = (np.searchsorted(called_ns, some[found], side="right") for some in (tree.start_ns, tree.end_ns))
    found[found] = first == last
    return found
