"""The largest batch that would fit into a device's memory, from what one batch takes."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.device_memory import DeviceMemory
from traceadvisor.model.step_memory import StepMemory


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
