"""The use of device memory in the terms of the JSON report."""

from __future__ import annotations

from traceadvisor.model.step_memory import MemoryFigures, MemoryOverTime, StepMemory
from traceadvisor.results.memory_document import (
    MemoryDocument,
    MemoryOverTimeDocument,
    MemoryReliefDocument,
    StepMemoryDocument,
)


def memory_document(figures: MemoryFigures | None) -> MemoryDocument | None:
    """The figures as they are; None where there are none."""
    if figures is None:
        return None
    relief = figures.relief
    return MemoryDocument(
        steps=[_step(step) for step in figures.steps],
        freed_bytes=MemoryReliefDocument(
            checkpointing=relief.checkpointing_bytes,
            mixed_precision=relief.mixed_precision_bytes,
            accumulation=relief.accumulation_bytes,
        ),
    )


def memory_over_time_document(memory: MemoryOverTime | None) -> MemoryOverTimeDocument | None:
    """The instants as they are; None where there are none."""
    if memory is None:
        return None
    return MemoryOverTimeDocument(
        time_us=(memory.time_ns / 1000).tolist(),
        in_use_bytes=memory.in_use_bytes.tolist(),
        reserved_bytes=None if memory.reserved_bytes is None else memory.reserved_bytes.tolist(),
    )


def _step(step: StepMemory) -> StepMemoryDocument:
    return StepMemoryDocument(
        index=step.index,
        state_bytes=step.state_bytes,
        activations_bytes=step.activations_bytes,
        rest_bytes=step.rest_bytes,
        peak_bytes=step.peak_bytes,
    )
