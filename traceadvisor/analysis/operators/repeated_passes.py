"""Recognises a graph that is differentiated again and again, once for each of its outputs."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_with_prefix
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

FEWEST = 6
"""Passes over a graph. Losses that share a model are few."""

_SELECTING = """
    _reshape_alias _to_copy _unsafe_view add add_ alias as_strided cat clone contiguous copy_ detach empty empty_like
    empty_strided expand expand_as eye fill_ flatten full full_like index lift_fresh narrow neg ones ones_like permute
    reshape resolve_conj resolve_neg select slice split squeeze stack sum t to transpose unbind unsqueeze view view_as
    zero_ zeros zeros_like
"""
_INDEPENDENT = frozenset(f"aten::{name}" for name in _SELECTING.split())
"""Operators that choose an output or keep a gradient. A pass that needs the gradients of the one before, as in the
method of conjugate gradients, has products between them."""


@frozen(eq=False)
class RepeatedPasses:
    """Backward passes over graphs that passes before them went through, none of which needs another's result."""

    spans: SpanSet
    """From the first to the last evaluation of each graph."""

    rows: Int64
    """The nodes that were evaluated again and again."""

    count: int
    """Passes over one graph, at most: those that the recording shows."""


def repeated_passes(trace: Trace, tree: OperatorTree, thread: int | None) -> RepeatedPasses | None:
    """Return the passes that run over one graph again and again; None without, and where one may need another.

    ``thread``: the training thread.
    """
    events, details = trace.events, trace.details
    rows = rows_with_prefix(trace, Kind.OPERATOR, BACKWARD_PREFIX)
    rows = rows[details.sequence.at(rows, np.int64(NONE)) != NONE]
    if rows.size < FEWEST:
        return None
    between = tree.rows[(tree.parent == NONE) & (tree.thread == thread)]
    may_need = np.array([not _is_independent(name) for name in trace.names], dtype=np.bool_)[events.name_id[between]]
    loop = np.sort(events.start_ns[between[may_need]]).searchsorted(events.start_ns[rows])
    numbers = [column.at(rows, np.int64(NONE)) for column in (details.forward_thread, details.sequence)]
    keys = np.stack([*numbers, events.name_id[rows].astype(np.int64), loop])
    _, node, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    node, many = node.reshape(-1), counts >= FEWEST
    if not many.any():
        return None
    first, last = np.full(counts.size, np.iinfo(np.int64).max), np.zeros(counts.size, dtype=np.int64)
    np.minimum.at(first, node, events.start_ns[rows])
    np.maximum.at(last, node, events.end_ns[rows])
    spans = SpanSet.of(*zip(first[many].tolist(), last[many].tolist(), strict=True))
    return RepeatedPasses(spans, rows[many[node]], int(counts.max()))


def _is_independent(name: str) -> bool:
    return name.startswith(BACKWARD_PREFIX) or name in _INDEPENDENT
