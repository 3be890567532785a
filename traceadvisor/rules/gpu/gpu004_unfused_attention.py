from __future__ import annotations

import numpy as np

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.analysis.arithmetic.kernel_work import PLAIN
from traceadvisor.analysis.arithmetic.roofline import REACH, Case
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.model.arrays import Float64, Int64, either
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Effort, Fix
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, clear_of, finding_of, frozen
from traceadvisor.rules.gpu.attention_blocks import attention_blocks, blocks_by_name
from traceadvisor.rules.gpu.narrower_types import most_saved_ns

_EXPECTED_PART = 0.5
"""Part of the possible saving that is expected. An assumption: short sequences gain little."""

_NOTHING = 1e-9
"""Share of a kernel's time that stands for none, because a speed-up is a finite number."""


@frozen
class UnfusedAttention(Rule):
    """Attention runs as separate matmuls, masks, softmax and dropout.

    What it finds: All kernels from one batched matmul (``bmm``) over a softmax to the next, without another matrix
        operation in between, in forward and backward. In a CUDA graph, the names and order of kernels show the pattern.
    Why it costs time: The score matrix of each head grows with the square of the sequence length. Each separate kernel
        reads it from GPU memory and writes it back. A fused kernel never writes it to memory.
    How to fix it: Call ``torch.nn.functional.scaled_dot_product_attention``. For Hugging Face models, set
        ``attn_implementation="sdpa"``. If the model already does this, look for what prevents fused kernels: float32
        inputs, an unusual mask or an unsupported head size.
    How the saving is estimated: The high estimate is the step simulated without softmax, mask and dropout kernels and
        their launches. If shapes and the GPU's peak rates are known, matmuls also run at up to 0.7 of the peak rate, as
        fused kernels do; if not, the high estimate has no limit for them, and the expected one leaves them as recorded.
        The expected estimate saves half of that GPU time and the launches, the low one nothing.
    When it may be wrong: A softmax between two matmuls may not be attention. Attention cannot be fused if the model
        reads or changes its weights. Short sequences gain little.
    """

    meta = RuleMeta("GPU004", "unfused-attention", "Attention runs as separate kernels instead of one fused kernel")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    popular_fix = "Fused attention"
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.05
    """Share of the step. With less, even the best case saves only a few percent."""

    def check(self, facts: Facts) -> Outcome:
        by_operator = attention_blocks(facts.trace, facts.launches, facts.tree, facts.steps.typical_windows)
        by_name = blocks_by_name(facts.device_work)
        kernels = either(by_operator.kernels, by_name.kernels)
        softmaxes = np.concatenate((by_operator.softmaxes, by_name.softmaxes))
        claims = facts.exposed(kernels, Category.KERNEL)
        share = facts.share(claims)
        left = _least_left(facts.device_work, kernels) if kernels.size else np.empty(0)
        likely, least = (np.where(np.isnan(left), unknown, left) for unknown in (1.0, 0.0))
        speedups = (np.ones(kernels.size), 1 / (1 - _EXPECTED_PART * (1 - likely)), 1 / np.maximum(least, _NOTHING))
        fix = Fix(
            "Compute attention with one fused kernel",
            change="output = torch.nn.functional.scaled_dot_product_attention(query, key, value)",
            what_if=FasterKernels(kernels, *speedups, kernels[left == 0]),
            needs=frozenset({Part.MODEL}),
        )
        if share < self.min_share:
            label, work = "time in separate attention kernels", facts.device_work
            judged = work.judged_share(work.has_operator | work.by_kernel.is_known)
            return clear_of(facts, label, share, self.min_share, fix=fix, judged_share=judged)
        return finding_of(
            facts,
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("attention blocks, forward and backward", softmaxes.size),
                facts.count_per_step("kernels in these blocks", kernels.size),
                facts.time_per_step("kernel time of these blocks", claims),
            ),
            most_ns=most_saved_ns(facts, fix, facts.per_step_ns(claims)),
            locations=facts.locations(by_operator.softmaxes[:1]),
            caveats=("Attention cannot be fused if the model reads or changes the attention weights.",),
        )


def _least_left(work: DeviceWork, kernels: Int64) -> Float64:
    """Return the least share of each kernel's time that a fused kernel still takes; NaN if it is unknown.

    Kernels that multiply nothing disappear. A matmul takes its time at the peak rate over the share of it that fused
    kernels reach, at most as long as recorded; without shapes or rates, that is unknown.
    """
    by_kernel, calls = work.by_kernel, work.calls
    order = np.argsort(by_kernel.rows)
    places = order[np.searchsorted(by_kernel.rows[order], kernels)]
    left = np.where(by_kernel.kind[places] == PLAIN, 0.0, np.nan)
    call = by_kernel.call[places]
    if work.limits is not None and calls.kind.size:
        fused_ns = work.limits.compute_ns / REACH[Kind.ATTENTION][Case.HIGH]
        share = np.minimum(1.0, fused_ns / np.maximum(calls.device_ns, 1))
        left = np.where((call == NONE) | (left == 0), left, share[call])
    return left
