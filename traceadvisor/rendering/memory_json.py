"""The use of device memory in the terms of the JSON report."""

from __future__ import annotations

from traceadvisor.model.step_memory import MemoryFigures, StepMemory
from traceadvisor.rendering.recording_document import MemoryDocument, MemoryReliefDocument, StepMemoryDocument


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


def _step(step: StepMemory) -> StepMemoryDocument:
    return StepMemoryDocument(
        index=step.index,
        state_bytes=step.state_bytes,
        activations_bytes=step.activations_bytes,
        rest_bytes=step.rest_bytes,
        peak_bytes=step.peak_bytes,
    )
