"""Parts of each step's peak device memory, memory over time for a chart, and ways to reduce the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_with_prefix
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.step_memory import MemoryFigures, MemoryOverTime, MemoryRelief, OperatorMemory, StepMemory
from traceadvisor.model.steps import Step
from traceadvisor.model.trace import Trace


@frozen(eq=False)
class _Levels:
    """Bytes held by tensors of one device; arrays of shape ``(n,)``, by time."""

    time_ns: Int64
    held_bytes: Int64

    def before(self, instant_ns: int) -> int | None:
        """Return the bytes held just before an instant; None if nothing was recorded by then."""
        position = int(np.searchsorted(self.time_ns, instant_ns, side="left")) - 1
        return int(self.held_bytes[position]) if position >= 0 else None

    def peak(self, start_ns: int, end_ns: int) -> int | None:
        """Return the most bytes held between two instants; None if nothing changed."""
        first, last = np.searchsorted(self.time_ns, [start_ns, end_ns], side="left")
        return int(self.held_bytes[first:last].max()) if last > first else None


def step_memory(trace: Trace, device: int, steps: Sequence[Step]) -> tuple[StepMemory, ...]:
    """Return the parts of each step's peak; steps with unknown parts are left out.

    Allocator events are timed on the host, so host marks assign them to steps. The backward pass begins with the first
    node that the autograd engine evaluates.
    """
    mine = trace.memory.device == device
    levels = _Levels(trace.memory.time_ns[mine], trace.memory.allocated_bytes[mine])
    nodes_ns = trace.events.start_ns[rows_with_prefix(trace, Kind.OPERATOR, BACKWARD_PREFIX)]
    found = (_parts(trace, levels, step, nodes_ns) for step in steps)
    return tuple(parts for parts in found if parts is not None)


def _parts(trace: Trace, levels: _Levels, step: Step, nodes_ns: Int64) -> StepMemory | None:
    first = int(np.searchsorted(nodes_ns, step.host_start_ns))
    if first == nodes_ns.size or nodes_ns[first] >= step.host_end_ns:
        return None
    backward_ns = int(nodes_ns[first])
    start, forward = levels.before(step.host_start_ns), levels.before(backward_ns)
    peak = levels.peak(step.host_start_ns, step.host_end_ns)
    if start is None or forward is None or peak is None:
        return None
    state = min(start - sum(_freed_by_zero_grad(trace, levels, step.host_start_ns, backward_ns)), forward)
    return StepMemory(step.index, state, forward - state, max(peak - forward, 0))


def _freed_by_zero_grad(trace: Trace, levels: _Levels, start_ns: int, end_ns: int) -> Iterator[int]:
    """Yield the bytes that each ``zero_grad`` between two instants freed: gradients gone before the forward pass."""
    rows = rows_with_prefix(trace, Kind.ANNOTATION, "Optimizer.zero_grad#")
    starts, ends = trace.events.start_ns[rows], trace.events.end_ns[rows]
    within = (starts >= start_ns) & (ends <= end_ns)
    for begun_ns, ended_ns in zip(starts[within].tolist(), ends[within].tolist(), strict=True):
        before, after = levels.before(begun_ns), levels.before(ended_ns)
        yield max(before - after, 0) if before is not None and after is not None else 0


MOST_INSTANTS = 400
"""Two per slot of time: as many as a chart can show, and few compared with the rest of a report."""


def memory_over_time(trace: Trace, device: int | None, steps: Sequence[Step]) -> MemoryOverTime | None:
    """Return one device's allocator levels over the recorded steps; None if not recorded."""
    memory = trace.memory
    if device is None or not steps:
        return None
    start_ns, end_ns = steps[0].host_start_ns, max(step.host_end_ns for step in steps)
    mine = (memory.device == device) & (memory.time_ns >= start_ns) & (memory.time_ns < end_ns)
    rows = _extremes(np.flatnonzero(mine), memory.time_ns, memory.allocated_bytes)
    if rows.size < 2:  # a line needs two points
        return None
    reserved = memory.reserved_bytes[rows]
    return MemoryOverTime(
        memory.time_ns[rows], memory.allocated_bytes[rows], None if (reserved == NONE).any() else reserved
    )


def _extremes(rows: Int64, time_ns: Int64, held_bytes: Int64) -> Int64:
    """Return the rows with the lowest and highest level of each time slot, and the first and last of all."""
    if rows.size <= MOST_INSTANTS:
        return rows
    edges_ns = np.linspace(time_ns[rows[0]], time_ns[rows[-1]], MOST_INSTANTS // 2 + 1)[1:-1]
    slots = [slot for slot in np.split(rows, np.searchsorted(time_ns[rows], edges_ns)) if slot.size]
    ends = [int(rows[0]), int(rows[-1])]
    kept = [int(slot[pick(held_bytes[slot])]) for slot in slots for pick in (np.argmin, np.argmax)]
    return np.unique(np.array(ends + kept, dtype=np.int64))


CHECKPOINTED_SHARE = 0.5
"""Share of activations that checkpointing keeps. With n equal layers in segments of sqrt(n), the segments' inputs and
one segment stay, 2 / sqrt(n): half with 16 layers, less with more. Chen et al., "Training Deep Nets with Sublinear
Memory Cost", https://arxiv.org/abs/1604.06174"""

RECOMPUTED_SHARE = 1 / 3
"""Share of kernel time of one more forward pass: a backward pass has two products for each forward product.
Kaplan et al., "Scaling Laws for Neural Language Models", https://arxiv.org/abs/2001.08361"""

HALF_PRECISION_SHARE = 0.5
"""Size of 16-bit activations relative to float32; activations that autocast keeps in float32 are neglected."""


def memory_relief(parts: StepMemory, autocast_dtype: str | None) -> MemoryRelief:
    """Return the memory that would be freed; gradients and workspaces are assumed to stay.

    ``parts``: of the fullest step. ``autocast_dtype``: the autocast type of the run; None without autocast, or if
    unknown.
    """
    activations = parts.activations_bytes
    return MemoryRelief(
        activations * (1 - CHECKPOINTED_SHARE),
        None if autocast_dtype else activations * (1 - HALF_PRECISION_SHARE),
        activations / 2,
    )


def fullest(steps: Sequence[StepMemory]) -> StepMemory:
    """Return the step with the highest peak."""
    return max(steps, key=lambda step: step.peak_bytes)


def memory_figures(steps: Sequence[StepMemory], autocast_dtype: str | None) -> MemoryFigures | None:
    """Return the steps, and what could be freed in the fullest one; None without steps."""
    return MemoryFigures(tuple(steps), memory_relief(fullest(steps), autocast_dtype)) if steps else None


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
