"""Device memory of a step at its peak, and over time."""

from __future__ import annotations

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64


@frozen
class StepMemory:
    """Device memory at the peak of one step; the three parts sum to the peak."""

    index: int
    """Index of the step."""

    state_bytes: int
    """Kept from the step before: parameters, optimizer state, gradients that were not freed."""

    activations_bytes: int
    """Added until the backward pass starts: the batch and the saved activations."""

    rest_bytes: int
    """Added at the peak: gradients, workspaces, temporary tensors."""

    @property
    def peak_bytes(self) -> int:
        """Most memory in use by tensors."""
        return self.state_bytes + self.activations_bytes + self.rest_bytes

    @property
    def activations_share(self) -> float:
        """Activations as a share of the peak, 0..1."""
        return self.activations_bytes / self.peak_bytes if self.peak_bytes else 0.0


@frozen
class MemoryRelief:
    """Memory that each change alone would free at the peak of the fullest step, from a formula."""

    checkpointing_bytes: float
    """Half of the activations, recomputed in the backward pass."""

    mixed_precision_bytes: float | None
    """Half of the activations, if all of them are float32; None where autocast is in use."""

    accumulation_bytes: float
    """Half of the activations: two half batches, one after the other."""


@frozen(eq=False)
class MemoryOverTime:
    """Memory of the caching allocator at points in time of the recorded steps: at least two values each, ``(n,)``."""

    time_ns: Int64
    """Since the recording's first event; ascending."""

    in_use_bytes: Int64
    """In use by tensors."""

    reserved_bytes: Int64 | None
    """Reserved from the driver, in use or not; None where not recorded."""

    def __post_init__(self) -> None:
        lengths = {len(one) for one in (self.time_ns, self.in_use_bytes, self.reserved_bytes) if one is not None}
        if len(lengths) > 1 or min(lengths) < 2:
            raise ValueError("lists of different lengths, or of fewer than two values")


@frozen
class OperatorMemory:
    """Device memory that an operator itself asks for, without the operators inside it; means per typical step."""

    operator: str

    allocations_per_step: float

    allocated_bytes_per_step: float

    net_bytes_per_step: float
    """Allocated less what was freed while the operator ran; negative where it frees more."""


@frozen
class MemoryFigures:
    """Device memory in the kept steps, from the allocator's own events."""

    steps: tuple[StepMemory, ...]
    """At least one step."""

    relief: MemoryRelief
    """Memory that each change alone would free, in the fullest step."""
