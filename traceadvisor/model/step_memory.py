"""What a step's peak of device memory is made of."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.arrays import Int64


@dataclass(frozen=True, slots=True)
class StepMemory:
    """The peak that tensors reach in one step; the three parts sum to it."""

    index: int
    """Of the step."""

    state_bytes: int
    """Held from the step before and kept: parameters, optimizer state, gradients that were not let go."""

    activations_bytes: int
    """The rise from there to the start of the backward pass: the batch and what the backward pass needs."""

    rest_bytes: int
    """What the peak adds: gradients, workspaces, temporary tensors."""

    @property
    def peak_bytes(self) -> int:
        """In use by tensors at the fullest instant."""
        return self.state_bytes + self.activations_bytes + self.rest_bytes

    @property
    def activations_share(self) -> float:
        """Of the peak, 0..1."""
        return self.activations_bytes / self.peak_bytes if self.peak_bytes else 0.0


@dataclass(frozen=True, slots=True)
class MemoryRelief:
    """Bytes that each way frees of the peak, by itself."""

    checkpointing_bytes: float
    """Activations computed again when the backward pass needs them."""

    mixed_precision_bytes: float | None
    """None where autocast is already in use."""

    accumulation_bytes: float
    """Two halves of the batch, one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class MemoryOverTime:
    """What the allocator holds at some instants of the recorded steps; arrays of shape ``(n,)``, at least two."""

    time_ns: Int64
    """Since the recording's first event; ascending."""

    in_use_bytes: Int64
    """By tensors."""

    reserved_bytes: Int64 | None
    """Taken from the driver, in use or not; None where not recorded."""


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """What a recording tells of the use of device memory."""

    steps: tuple[StepMemory, ...]
    """At least one."""

    relief: MemoryRelief
    """Of the fullest step."""
