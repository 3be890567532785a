"""What the well-known ways to make room would free of a step's peak: models, each with its assumption."""

from __future__ import annotations

from collections.abc import Sequence

from traceadvisor.model.step_memory import MemoryFigures, MemoryRelief, StepMemory

CHECKPOINTED_SHARE = 0.5
"""Of activations, what checkpointing leaves. Of n alike layers in segments of sqrt(n), the segments' inputs and one
segment stay, 2 / sqrt(n): half of them with 16 layers, less with more. Chen et al., "Training Deep Nets with Sublinear
Memory Cost", https://arxiv.org/abs/1604.06174"""

RECOMPUTED_SHARE = 1 / 3
"""Of the time that kernels take, one more forward pass: a backward pass is two products for each of the forward's.
Kaplan et al., "Scaling Laws for Neural Language Models", https://arxiv.org/abs/2001.08361"""

HALF_PRECISION_SHARE = 0.5
"""Of float32 activations, what 16-bit ones take; what autocast keeps in float32 is neglected."""


def memory_relief(parts: StepMemory, autocast_dtype: str | None) -> MemoryRelief:
    """What would be free, as far as activations tell: gradients and workspaces are taken to stay.

    Args:
        parts: of the fullest step.
        autocast_dtype: what the run already computes in; None where it does not, or where that is not known.
    """
    activations = parts.activations_bytes
    return MemoryRelief(
        activations * (1 - CHECKPOINTED_SHARE),
        None if autocast_dtype else activations * (1 - HALF_PRECISION_SHARE),
        activations / 2,
    )


def fullest(steps: Sequence[StepMemory]) -> StepMemory:
    """The step with the highest peak."""
    return max(steps, key=lambda step: step.peak_bytes)


def memory_figures(steps: Sequence[StepMemory], autocast_dtype: str | None) -> MemoryFigures | None:
    """The steps, and what would be free in the fullest of them; None without steps."""
    return MemoryFigures(tuple(steps), memory_relief(fullest(steps), autocast_dtype)) if steps else None
