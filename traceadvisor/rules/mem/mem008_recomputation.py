from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.recomputed import Recomputed, recomputed
from traceadvisor.analysis.sampled.shares import line_calling
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.replay.fixes.spared_work import WithoutRecomputation
from traceadvisor.replay.what_if import Edit
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen

KEEP = "x = block(x)  # instead of torch.utils.checkpoint.checkpoint(block, x)"
FEWER = """\
for number, block in enumerate(blocks):
    x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if number % 2 else block(x)"""
SELECTIVE = (
    "Selective checkpointing is the middle way: it keeps the results of matrix products and attention, and recomputes "
    "the cheap rest."
)
IF_MEMORY_ALLOWS = "it is unknown whether the memory is enough to keep the activations"

MOST_LOCATIONS = 3


@frozen
class Recomputation(Rule):
    """The backward pass computes activations again that the forward pass did not keep.

    What it finds: Operators with gradients enabled inside the backward pass, in the order in which the forward pass ran
        them: activation checkpointing. Recorded shapes of matrix operations have to match, too. A second backward pass,
        as for a gradient penalty, does not match.
    Why it costs time: A checkpointed block runs its forward pass twice, up to a third of a step. This pays off only if
        the freed memory is used.
    How to fix it: Use ``checkpoint`` for fewer blocks, beginning with those that hold the least memory for their time.
        Or use selective checkpointing (``context_fn`` of ``checkpoint`` with ``create_selective_checkpoint_contexts``).
        In transformers, it is ``gradient_checkpointing_disable()``.
    How the saving is estimated: If the recorded memory shows that all activations fit, the step is simulated without
        the recomputation: all blocks but the largest need what they then keep at the peak, up to four fifths of the GPU
        memory. Otherwise, upper limit: the time of the recomputation, with the code that calls a block again, or the
        part that fits.
    When it may be wrong: The batch may be as large as it is because of checkpointing. Compiled regions recompute inside
        one operator, which a recording does not show.
    """

    meta = RuleMeta("MEM008", "recomputation", "The backward pass computes activations again")
    needs = frozenset({Input.STEPS})
    training_only = True
    claims = frozenset({Category.KERNEL, Category.IDLE_LAUNCH, Category.IDLE_HOST, Category.BACKWARD})

    min_share: float = 0.05
    """Share of the step. Less is a low price for the freed memory."""

    target_share: float = 0.8
    """Share of GPU memory to use. The rest is for unusually large batches and fragmentation."""

    def check(self, facts: Facts) -> Outcome:
        if not facts.trace.with_sequence:
            return Skipped("The recording does not number its operators, as newer versions of torch do.")
        events, found = facts.trace.events, recomputed(facts.trace, facts.tree)
        rows = facts.launched_by(found.operators)
        claims = facts.exposed(rows, Category.KERNEL)
        host = (Category.IDLE_LAUNCH, Category.IDLE_HOST) if facts.observation.has_device else (Category.BACKWARD,)
        claims |= found.spans & facts.claim(*host)
        share = facts.share(claims)
        more_bytes, free_bytes = _more_bytes(facts, found), self._free_bytes(facts)
        fits = None if more_bytes is None or free_bytes is None else min(free_bytes / max(more_bytes, 1.0), 1.0)
        avoidable = share if fits is None else share * fits
        if avoidable < self.min_share:
            remark = None if avoidable == share else "the free GPU memory holds no more activations"
            return Clear("recomputation that memory could avoid", avoidable, self.min_share, Unit.SHARE, remark)
        line = line_calling(facts.run.stack_samples, "torch/utils/checkpoint.py", "checkpoint")
        longest = np.argsort(-events.duration_ns[found.operators], kind="stable")
        in_steps = facts.steps.typical_marks.contains(found.starts_ns)
        edit: Edit = WithoutRecomputation(rows, found.spans) if rows.size else WithoutHostWork(found.spans)
        return finding_of(
            facts,
            claims=claims,
            fix=_fix(edit, fits),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("recomputation of activations", claims),
                Evidence("share of the step", share, Unit.SHARE),
                facts.count_per_step("recomputed blocks", int(in_steps.sum())),
                facts.known("additional memory to keep all activations", more_bytes, Unit.BYTES),
                facts.known("free GPU memory up to four fifths", free_bytes, Unit.BYTES),
            ),
            most_ns=facts.per_step_ns(claims) * avoidable / share,
            locations=(line,) if line else facts.locations(found.operators[longest], MOST_LOCATIONS),
            caveats=(
                *(() if more_bytes is not None else (_unknown(facts),)),
                SELECTIVE,
            ),
        )

    def _free_bytes(self, facts: Facts) -> float | None:
        """Return the free memory of the GPU; None if unknown."""
        memory = facts.memory
        return None if memory is None else max(self.target_share * memory.capacity_bytes - memory.held_bytes, 0.0)


def _more_bytes(facts: Facts, found: Recomputed) -> float | None:
    """Return what all blocks of a step keep beyond the largest, which is in memory today; None if unknown."""
    if facts.device_index is None:
        return None
    kept = found.kept_bytes(facts.trace, facts.device_index)
    marks = [(step.host_start_ns, step.host_end_ns) for step in facts.steps.typical]
    of_steps = [kept[(found.starts_ns >= start) & (found.starts_ns < end)] for start, end in marks]
    return max((float(each.sum() - each.max()) for each in of_steps if each.any()), default=None)


def _unknown(facts: Facts) -> str:
    """Return why the memory of the activations is unknown, and how to record it."""
    reason = "The memory that the activations need is unknown"
    if facts.device_index is None:
        return f"{reason}: memory of the CPU is not measured."
    return facts.unknown_without(reason, Option.MEMORY)


def _fix(edit: Edit, fits: float | None) -> Fix:
    """Return what to change where all activations fit, where only a part does, and where that is unknown."""
    if fits is None:
        return Fix("Checkpoint fewer blocks, as far as memory allows", FEWER, not_replayed=IF_MEMORY_ALLOWS)
    if fits < 1:
        return Fix("Checkpoint fewer blocks", FEWER, not_replayed="memory is enough for a part of the activations only")
    return Fix("Keep the activations of these blocks: the GPU memory is enough", KEEP, what_if=edit)
