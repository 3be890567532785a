"""MEM006: activations fill the device's memory."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.memory.step_memory import RECOMPUTED_SHARE, memory_relief
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class CheckpointingCandidate(Rule):
    """Most of a well-filled device holds activations, which could be computed again instead of kept.

    What it finds: Steps whose peak of memory in use is most of the device's, where most of the peak is what the forward
        pass leaves for the backward pass. The allocator's own events tell: what is held when the step begins, what is
        held when the backward pass begins, and the peak.
    Why it costs time: By itself it costs none. It keeps the batch from growing where a larger one would use the device
        better, and a longer batch than any before ends the run.
    How to fix it: Wrap the blocks of the model that hold most in ``torch.utils.checkpoint.checkpoint(block, x,
        use_reentrant=False)``: their activations are computed again in the backward pass. Try mixed precision first,
        which frees about as much and saves time.
    How the saving is estimated: It is none: the step becomes longer by up to one more forward pass, taken to be a third
        of the time that kernels take. What it frees is taken to be half of the activations, as with 16 alike layers in
        four segments.
    When it may be wrong: A model whose activations lie in one layer, a long vocabulary's logits for example, gains
        little from blocks. Gradients that are let go by other means than the optimizer's ``zero_grad`` make activations
        look smaller.
    """

    meta = RuleMeta("MEM006", "checkpointing-candidate", "Activations fill the device's memory")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MEMORY})

    min_activations_share: float = 0.5
    """Of the peak; with less, half of the activations is less than a quarter of the memory in use."""

    min_capacity_share: float = 0.7
    """Of the device's memory that tensors use at the peak; with less there is room without any of this, up to the four
    fifths that a run can safely hold."""

    def check(self, facts: Facts) -> Outcome:
        """Look at the fullest step: how full, and of what."""
        memory, parts = facts.needed(facts.memory, Input.DEVICE_MEMORY), facts.fullest_step
        if parts is None:
            return Skipped(
                "What memory is used for was not recorded over two steps or more: record with profile_memory=True."
            )
        if (held := parts.peak_bytes / memory.capacity_bytes) < self.min_capacity_share:
            return Clear("device memory in use at the peak", held, self.min_capacity_share, Unit.SHARE)
        if parts.activations_share < self.min_activations_share:
            return Clear("activations at the peak", parts.activations_share, self.min_activations_share, Unit.SHARE)
        freed = memory_relief(parts, facts.settings.autocast_dtype).checkpointing_bytes
        longer_ns = RECOMPUTED_SHARE * facts.per_step_ns(facts.claim(Category.KERNEL))
        return facts.finding(
            fix=Fix(
                "Compute the activations of the largest blocks again instead of keeping them",
                change="torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("in use by tensors at the peak", parts.peak_bytes, Unit.BYTES),
                Evidence("of it held between steps", parts.state_bytes, Unit.BYTES),
                Evidence("of it activations", parts.activations_bytes, Unit.BYTES),
                Evidence("of it gradients, workspaces and temporary tensors", parts.rest_bytes, Unit.BYTES),
                Evidence("activations at the peak", parts.activations_share, Unit.SHARE),
                Evidence("freed where half of the activations is computed again", freed, Unit.BYTES),
                Evidence("longer step, at most, by one more forward pass", longer_ns, Unit.NS_PER_STEP),
            ),
            caveats=(
                "The step becomes longer; it pays where the room is used, by a larger batch for example.",
                "Mixed precision frees about as much and saves time: try it first.",
            ),
        )
