"""Device memory by the operator that asks for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.events import NONE
from traceadvisor.model.memory_figures import OperatorMemory
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.model.trace import Trace

MOST_OPERATORS = 20
"""Operators with a row of their own; few allocate much."""

OUTSIDE = "outside operators"
OTHERS = "all other operators"


def memory_by_operator(
    trace: Trace, tree: OperatorTree, device: int | None, steps: Sequence[Step]
) -> tuple[OperatorMemory, ...]:
    """Return operators by the memory that they allocate on a device, most first; the last row has all others.

    A change counts for the innermost operator around it on its thread. Allocator events are timed on the host, so host
    marks assign them to steps.
    """
    memory = trace.memory
    windows = SpanSet.of(*((step.host_start_ns, step.host_end_ns) for step in steps))
    rows = np.flatnonzero((memory.device == device) & windows.contains(memory.time_ns))
    if not rows.size:
        return ()
    position = tree.enclosing(memory.thread[rows], memory.time_ns[rows])
    names = np.full(rows.size, NONE, np.int64)
    names[position != NONE] = trace.events.name_id[tree.rows[position[position != NONE]]]
    changed = memory.changed_bytes[rows]
    known, place = np.unique(names, return_inverse=True)
    count, allocated, net = (
        np.bincount(place, weights=weights, minlength=known.size) / len(steps)
        for weights in (changed > 0, np.maximum(changed, 0), changed)
    )
    found = [
        OperatorMemory(OUTSIDE if name == NONE else trace.names[name], *figures)
        for name, *figures in zip(known.tolist(), count.tolist(), allocated.tolist(), net.tolist(), strict=True)
    ]
    found.sort(key=lambda row: (-row.allocated_bytes_per_step, row.operator))
    return (*found[:MOST_OPERATORS], *_together(found[MOST_OPERATORS:]))


def _together(rows: Sequence[OperatorMemory]) -> tuple[OperatorMemory, ...]:
    if not rows:
        return ()
    allocations = sum(row.allocations_per_step for row in rows)
    allocated, net = (
        sum(row.allocated_bytes_per_step for row in rows),
        sum(row.net_bytes_per_step for row in rows),
    )
    return (OperatorMemory(OTHERS, allocations, allocated, net),)
