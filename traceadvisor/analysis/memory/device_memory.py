"""Device memory that a run holds, from allocator events or device samples, and the largest batch that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.scaling import grows_with_batch, guessed_law
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.events import NONE
from traceadvisor.model.memory_figures import DeviceMemoryFigures, MemoryClass, OperatorMemory
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.model.telemetry_window import DeviceWindow
from traceadvisor.model.trace import Trace


@frozen
class DeviceMemory:
    """Peaks over the kept or the undisturbed steps; None if not measured."""

    capacity_bytes: int
    allocated_bytes: int | None
    """Peak in use by tensors, from the recording."""

    least_allocated_bytes: int | None
    """Lowest level: parameters, optimizer state and whatever else outlives a step."""

    held_bytes: float
    """Peak taken from the device: by all processes if sampled, else reserved by torch."""

    reserved_bytes: int | None = None
    """Peak reserved by torch's allocator, in use or not, from the recording."""

    foreign_bytes: float | None = None
    """Peak held by other processes; None if unknown."""

    @property
    def share(self) -> float:
        """Held share of the capacity, 0..1."""
        return self.held_bytes / self.capacity_bytes

    @property
    def own_bytes(self) -> float:
        """Held without the known part of other processes; a lower limit, because the peaks may not coincide."""
        return max(self.held_bytes - (self.foreign_bytes or 0.0), 0.0)


def device_memory(trace: Trace, device: int, windows: SpanSet, sampled: DeviceWindow | None) -> DeviceMemory | None:
    """Return one device's memory; None without events and samples, or if the capacity is unknown."""
    capacity = trace.device(device).memory_bytes
    memory = trace.memory
    inside = (memory.device == device) & windows.contains(memory.time_ns)
    allocated = memory.allocated_bytes[inside]
    reserved = memory.reserved_bytes[inside & (memory.reserved_bytes != NONE)]
    held = sampled.peak_memory_bytes if sampled else None
    foreign = sampled.peak_foreign_memory_bytes if sampled and held is not None else None
    if held is None and reserved.size:
        held = float(reserved.max())
    if not capacity or not held:  # a backend may write 0 for what it does not count
        return None
    return DeviceMemory(
        capacity,
        int(allocated.max()) if allocated.size else None,
        int(np.min(allocated)) if allocated.size else None,
        held,
        int(reserved.max()) if reserved.size else None,
        foreign,
    )


@frozen
class PeakParts:
    """The parts of the peak; together its bytes."""

    state_bytes: int
    """Parameters, optimizer state, and what no evidence tells, which most often was there before."""

    activations_bytes: int
    """Saved activations and inputs."""

    rest_bytes: int
    """Gradients, workspaces, temporary tensors."""

    @property
    def peak_bytes(self) -> int:
        """Most memory in use by tensors."""
        return self.state_bytes + self.activations_bytes + self.rest_bytes


def peak_parts(device: DeviceMemoryFigures) -> PeakParts | None:
    """Return the parts of the peak by their classes; None where no activations are known."""
    held = {one.kind: one.requested_bytes for one in device.classes}
    if MemoryClass.ACTIVATIONS not in held:
        return None
    state = sum(held.get(one, 0) for one in _STATE)
    activations = held[MemoryClass.ACTIVATIONS] + held.get(MemoryClass.INPUTS, 0)
    return PeakParts(state, activations, device.peak_bytes - state - activations)


_STATE = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER_STATE, MemoryClass.UNKNOWN)

RECOMPUTED_SHARE = 1 / 3
"""Share of kernel time of one more forward pass: a backward pass has two products for each forward product.
Kaplan et al., "Scaling Laws for Neural Language Models", https://arxiv.org/abs/2001.08361"""

HALF = 0.5
"""Share of activations that checkpointing keeps. With n equal layers in segments of sqrt(n), the segments' inputs and
one segment stay, 2 / sqrt(n): half with 16 layers, less with more. Chen et al., "Training Deep Nets with Sublinear
Memory Cost", https://arxiv.org/abs/1604.06174. Also the size of 16-bit activations relative to float32."""


def freed_by_half_the_activations(memory: SnapshotFacts) -> int:
    """Return by how much the peak falls with half of the saved activations: recomputed, or in 16 bits."""
    return memory.saved(MemoryChange(np.flatnonzero(memory.is_saved), HALF))


BLOCK_VALUES = 256
"""Values that share a scale in bitsandbytes."""

SMALLEST_STATE_BYTES = 4 * 4096
"""Tensors with fewer than 4,096 values stay in 32 bits there."""


def state_in_8_bits(memory: SnapshotFacts, bytes_per_value: int = 4) -> MemoryChange:
    """Return the change of the optimizer's state to 8 bits, from so many bytes per value."""
    large = memory.is_of(MemoryClass.OPTIMIZER_STATE) & (memory.rows.size_bytes >= SMALLEST_STATE_BYTES)
    return MemoryChange(np.flatnonzero(large), (1 + 4 / BLOCK_VALUES) / bytes_per_value)


def freed_by_half_the_batch(memory: SnapshotFacts) -> int:
    """Return by how much the peak falls with half of all that grows with the batch."""
    return memory.saved(MemoryChange(grows_with_batch(memory), HALF))


@frozen
class LargestBatch:
    """A forecast for some share of the device's memory."""

    per_sample_bytes: float
    """Bytes that one more sample adds to the peak of the batch that fits."""

    samples: int
    """The batch that fits."""


def largest_batch(
    memory: DeviceMemory, recorded: SnapshotFacts | None, batch: int, target_share: float
) -> LargestBatch:
    """Return the batch that fits. Gaps in reserved memory grow with the tensors; all else outside tensors stays.

    Args:
        memory: as held with the present batch.
        recorded: its allocations: those of samples grow wherever the peak will then be, and all others stay. Without
            them, all above the lowest level grows.
        batch: samples in a batch.
        target_share: of the device's memory that may be held.
    """
    peak = float(memory.allocated_bytes or memory.held_bytes)
    reserved = max(memory.reserved_bytes or peak, peak)
    room = (target_share * memory.capacity_bytes - max(memory.held_bytes - reserved, 0.0)) * peak / reserved
    law = guessed_law(recorded) if recorded else None
    if law is not None:
        factor = law.largest_factor(int(room))
        added = law.peak_bytes(2 * factor) - law.peak_bytes(factor)
        return LargestBatch(added / max(factor * batch, 1), int(factor * batch))
    state = float(memory.least_allocated_bytes or 0)
    per_sample = max(peak - state, 1.0) / batch
    return LargestBatch(per_sample, int((room - state) / per_sample))


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


def _together(rows: Sequence[OperatorMemory]) -> Iterator[OperatorMemory]:
    if rows:
        figures = ((row.allocations_per_step, row.allocated_bytes_per_step, row.net_bytes_per_step) for row in rows)
        yield OperatorMemory(OTHERS, *map(sum, zip(*figures, strict=True)))
