from __future__ import annotations

from traceadvisor.analysis.memory.device_memory import RECOMPUTED_SHARE, freed_by_half_the_activations
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen


@frozen
class CheckpointingCandidate(Rule):
    """Most of a nearly full GPU memory holds activations, which could be recomputed instead of kept.

    What it finds: Steps that use most of the GPU memory at their peak, most of it activations, which the forward pass
        keeps for the backward pass. Allocator events show which pass allocates and frees each tensor.
    Why it costs time: It costs no time directly. But the batch cannot grow, and a larger one than usual causes an
        out-of-memory error.
    How to fix it: Wrap the largest blocks of the model in ``torch.utils.checkpoint.checkpoint(block, x,
        use_reentrant=False)``. The backward pass then recomputes their activations. Try mixed precision first: it frees
        about the same memory and saves time.
    How the saving is estimated: The fix saves no time: the step becomes longer by up to one more forward pass, assumed
        to take a third of the kernel time. The recorded allocations are replayed with half of the saved activations, as
        with 16 equal layers in four segments.
    When it may be wrong: If most activations are in one layer, such as the logits of a large vocabulary, checkpointing
        blocks frees little memory.
    """

    meta = RuleMeta("MEM006", "checkpointing-candidate", "Activations fill the GPU memory")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MEMORY})
    training_only = True

    min_activations_share: float = 0.5
    """Share of the peak. With less, half of the activations is less than a quarter of the memory in use."""

    min_capacity_share: float = 0.7
    """Share of GPU memory that tensors use at the peak. With less, memory is free without this fix, up to a safe four
    fifths."""

    def check(self, facts: Facts) -> Outcome:
        memory, allocations = facts.needed(facts.memory, Input.DEVICE_MEMORY), facts.allocations
        parts = facts.peak_parts
        if parts is None or allocations is None:
            reason = "No memory that the forward pass keeps for the backward pass was recorded"
            return Skipped(facts.unknown_without(reason, Option.MEMORY))
        if (held := parts.peak_bytes / memory.capacity_bytes) < self.min_capacity_share:
            return Clear("GPU memory used by tensors at the peak", held, self.min_capacity_share, Unit.SHARE)
        share = parts.activations_bytes / max(parts.peak_bytes, 1)
        if share < self.min_activations_share:
            return Clear("activations at the peak", share, self.min_activations_share, Unit.SHARE)
        freed = freed_by_half_the_activations(allocations)
        longer_ns = RECOMPUTED_SHARE * facts.per_step_ns(facts.claim(Category.KERNEL))
        return finding_of(
            facts,
            fix=Fix(
                "Recompute the activations of the largest blocks instead of keeping them",
                needs=frozenset({Part.BACKWARD}),
                change="x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # instead of block(x)",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("GPU memory used by tensors at the peak", parts.peak_bytes, Unit.BYTES),
                Evidence("memory held between steps", parts.state_bytes, Unit.BYTES),
                Evidence("activation memory", parts.activations_bytes, Unit.BYTES),
                Evidence("gradients, workspaces and temporary tensors", parts.rest_bytes, Unit.BYTES),
                Evidence("activations at the peak", share, Unit.SHARE),
                Evidence("memory freed by checkpointing", freed, Unit.BYTES),
                Evidence("extra step time for checkpointing, at most", longer_ns, Unit.NS_PER_STEP),
            ),
            caveats=(
                "Use the free memory, for example for a larger batch: the step becomes longer.",
                "Try mixed precision first: it frees about the same memory and saves time.",
            ),
        )
