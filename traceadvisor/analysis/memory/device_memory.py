"""How much of a device's memory a run holds, from the allocator's own events or from samples of the device.

The largest batch that would fit into a device's memory, from what one batch takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.step_memory import StepMemory
from traceadvisor.model.telemetry_window import DeviceWindow
from traceadvisor.model.trace import Trace


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Peaks over the kept steps or the undisturbed steps; None where not measured."""

    capacity_bytes: int
    allocated_bytes: int | None
    """Peak in use by tensors, from the recording."""

    least_allocated_bytes: int | None
    """Held at the emptiest instant: parameters, optimizer state and whatever else outlives a step."""

    held_bytes: float
    """Peak taken from the device: by everyone where it was sampled, else what torch reserved."""

    reserved_bytes: int | None = None
    """Peak that torch's allocator had taken, in use or not, from the recording."""

    foreign_bytes: float | None = None
    """Of what is held, the peak of other processes; None where nobody was told apart."""

    @property
    def share(self) -> float:
        """Of the capacity, 0..1."""
        return self.held_bytes / self.capacity_bytes

    @property
    def own_bytes(self) -> float:
        """Held without what other processes are known to hold; the least that it can be, for peaks may fall apart."""
        return max(self.held_bytes - (self.foreign_bytes or 0.0), 0.0)


def device_memory(trace: Trace, device: int, windows: SpanSet, sampled: DeviceWindow | None) -> DeviceMemory | None:
    """What is known of one device's memory; None where neither events nor samples tell, or the capacity is unknown."""
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


@dataclass(frozen=True, slots=True)
class LargestBatch:
    """A forecast for some share of the device's memory."""

    per_sample_bytes: float
    """What a sample takes, where all grows with the batch that a step adds to what it begins with."""

    samples: int
    """The batch that fits by that."""

    samples_by_activations: int | None
    """The batch that fits where activations alone grow with it, and gradients and workspaces do not; None where the
    recording does not tell activations."""


def largest_batch(memory: DeviceMemory, parts: StepMemory | None, batch: int, target_share: float) -> LargestBatch:
    """What fits, linear in the batch. What is held beside tensors is taken to stay as it is.

    Args:
        memory: as held with the batch as it is.
        parts: of the fullest step; where it is not known, what is held at the emptiest instant outlives a step.
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
