"""Device memory that a run holds, from allocator events or device samples, and the largest batch that fits."""

from __future__ import annotations

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.step_memory import StepMemory
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
    if not capacity or held is None:
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
class LargestBatch:
    """A forecast for some share of the device's memory."""

    per_sample_bytes: float
    """Bytes per sample, if everything that a step adds grows with the batch."""

    samples: int
    """The batch that fits under that assumption."""

    samples_by_activations: int | None
    """The batch that fits if only activations grow with it, not gradients and workspaces; None if activations are
    unknown."""


def largest_batch(memory: DeviceMemory, parts: StepMemory | None, batch: int, target_share: float) -> LargestBatch:
    """Return the batch that fits, linear in the batch size. Memory outside tensors is assumed to stay the same.

    Args:
        memory: as held with the present batch.
        parts: of the fullest step; if unknown, the lowest level is taken as what outlives a step.
        batch: samples in a batch.
        target_share: of the device's memory that may be held.
    """
    peak = float(memory.allocated_bytes) if memory.allocated_bytes is not None else memory.held_bytes
    room = target_share * memory.capacity_bytes - (memory.held_bytes - peak)
    state = float(parts.state_bytes if parts else memory.least_allocated_bytes or 0)
    per_sample = max(peak - state, 1.0) / batch
    if parts is None or not parts.activations_bytes:
        return LargestBatch(per_sample, int((room - state) / per_sample), None)
    fixed = peak - parts.activations_bytes
    by_activations = int((room - fixed) / (parts.activations_bytes / batch))
    return LargestBatch(per_sample, int((room - state) / per_sample), by_activations)
