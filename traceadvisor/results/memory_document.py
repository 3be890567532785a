"""The use of device memory as the JSON report holds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemoryDocument:
    """What one step's peak of device memory is made of; the three parts sum to it."""

    index: int
    """Of the step."""

    state_bytes: int
    """Held from the step before and kept: parameters, optimizer state, gradients that were not let go."""

    activations_bytes: int
    """The rise from there to the start of the backward pass."""

    rest_bytes: int
    """Gradients, workspaces, temporary tensors."""

    peak_bytes: int
    """In use by tensors at the fullest instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReliefDocument:
    """Bytes of the fullest step that each way to make room would free by itself, by a model."""

    checkpointing: float
    """Half of the activations, computed again in the backward pass."""

    mixed_precision: float | None
    """Half of the activations, were all of them float32; null where autocast is in use."""

    accumulation: float
    """Half of the activations: two half batches, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDocument:
    """The use of device memory in the kept steps, by the allocator's own events."""

    steps: list[StepMemoryDocument]
    freed_bytes: MemoryReliefDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOverTimeDocument:
    """What the allocator holds at some instants of the recorded steps, every peak among them; lists of one length."""

    time_us: list[float]
    in_use_bytes: list[int]
    reserved_bytes: list[int] | None
    """Taken from the driver, in use or not; null where not recorded."""
