"""GPU004: attention is computed step by step instead of by one kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.model.breakdown import Category
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit
from traceadvisor.rules.gpu.attention_blocks import attention_blocks

EXPECTED_SPEEDUP, HIGHEST_SPEEDUP = 2.0, 7.6
"""How many times as fast a fused kernel is: at most 7.6, the attention of GPT-2 (https://arxiv.org/abs/2205.14135,
figure 1); twice is an assumption, and at the least nothing is gained: short sequences hardly do."""


@dataclass(frozen=True, slots=True)
class UnfusedAttention(Rule):
    """Attention runs as separate products, masks, softmax and dropout.

    What it finds: A softmax between two batched matrix products with no other matrix work between them, and the same
        backward; and all kernels from the first of these products to the last.
    Why it costs time: The matrix of scores, as large as the square of the sequence's length for each head, is written
        to device memory and read back at every step of it. A fused kernel keeps pieces of it on the chip and never
        writes it.
    How to fix it: ``torch.nn.functional.scaled_dot_product_attention``; models of Hugging Face take
        ``attn_implementation="sdpa"``. Where that is called already, something keeps it from its fast kernels: float32
        inputs, a mask of an unusual kind, head sizes that they do not take.
    How the saving is estimated: The step is replayed with these kernels twice as fast (at the least as they are, at the
        most 7.6 times as fast).
    When it may be wrong: A softmax between two products need not be attention. Attention weights that are looked at or
        changed between softmax and product cannot be fused away. Short sequences gain little.
    """

    meta = RuleMeta("GPU004", "unfused-attention", "Attention runs as separate kernels instead of a fused one")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    popular_fix = "Fused attention"

    min_share: float = 0.05
    """Share of the step; with less, even the best case gains a few percent."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of attention blocks with the step."""
        blocks = attention_blocks(facts.trace, facts.launches, facts.tree, facts.steps.kept_windows)
        claims = facts.exposed(blocks.kernels, Category.KERNEL)
        share = facts.share(claims)
        speedups = (np.full(blocks.kernels.size, speedup) for speedup in (1.0, EXPECTED_SPEEDUP, HIGHEST_SPEEDUP))
        fix = Fix(
            "Compute attention with one kernel",
            change="torch.nn.functional.scaled_dot_product_attention(query, key, value)",
            what_if=FasterKernels(blocks.kernels, *speedups),
        )
        if share < self.min_share:
            return facts.clear("attention in separate kernels", share, self.min_share, Unit.SHARE, fix=fix)
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("such blocks, forward and backward", blocks.softmaxes.size),
                facts.count_per_step("kernels in them", blocks.kernels.size),
                facts.time_per_step("their time", claims),
            ),
            most_ns=facts.per_step_ns(claims) * (1 - 1 / HIGHEST_SPEEDUP),
            locations=facts.locations(blocks.softmaxes[:1]),
            caveats=("Attention weights that the model looks at or changes cannot be fused away.",),
        )
