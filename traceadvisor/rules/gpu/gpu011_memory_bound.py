from __future__ import annotations

import numpy as np

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.analysis.arithmetic.kernel_work import PLAIN
from traceadvisor.analysis.operators.optimizer import work_on_parameters
from traceadvisor.model.arrays import Mask, common, either, without
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import (
    LEAST_JUDGED_SHARE,
    Category,
    Facts,
    Input,
    Outcome,
    Part,
    Rule,
    RuleMeta,
    finding_of,
    frozen,
)

MOST_SPARED = 0.5
"""Largest share of the time of pointwise operations, normalisation and reductions that fusion is assumed to save. One
fused kernel reads and writes half of the data of two separate ones."""


@frozen
class MemoryBound(Rule):
    """The GPU is busy, but memory limits most of its kernels.

    What it finds: Kernel time of pointwise operations, normalisation and reductions, and of matmuls and convolutions
        whose memory traffic, by their shapes, takes longer than their arithmetic. Kernels without a recorded operator
        are recognised by name. Very short kernels are left out: memory does not limit them.
    Why it costs time: Every kernel reads its inputs from GPU memory and writes its outputs back. A GPU with more FLOP/s
        would not be faster.
    How to fix it: Fuse kernels: ``torch.compile``, fused losses, scaled_dot_product_attention. Move less data: 16-bit
        activations, channels_last for convolutions, in-place operations.
    How the saving is estimated: Upper limit: half of the time of pointwise operations, normalisation and reductions,
        which fusing pairs of kernels would save. Only torch's own kernels count: ``torch.compile`` has fused those that
        it generated, and cannot fuse other libraries' (embedding tables), updates of parameters or resets of gradients.
        Memory-bound matmuls and convolutions are not counted: GPU001 covers them.
    When it may be wrong: Data may come from the cache instead of memory. Kernels that use few of the GPU's units are
        limited by neither memory nor arithmetic.
    """

    meta = RuleMeta("GPU011", "memory-bound", "Most kernel time is memory-bound")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.5
    """Memory-bound share of kernel time. Below it, arithmetic is at least as important."""

    min_step_share: float = 0.3
    """Memory-bound share of the step. With less, the GPU mostly waits."""

    max_compiled_share: float = 0.5
    """Share of the pointwise operations, normalisation and reductions that a compiler has fused. Above it, fusing has
    been done."""

    min_model_share: float = 0.5
    """The model's share of the time of kernels that could be fused. Below it, compiling the model fuses little."""

    shortest_us: float = 5.0
    """Shorter kernels are mostly start-up time. In 5 µs, the slowest GPU in the table moves a megabyte."""

    def check(self, facts: Facts) -> Outcome:
        work, limits = facts.device_work, facts.device_work.limits
        is_long = facts.trace.events.duration_ns >= self.shortest_us * 1000
        plain = work.plain_kernels
        products = work.kernels_of(limits.is_memory_bound) if limits else plain[:0]
        plain, products = plain[is_long[plain]], products[is_long[products]]
        limited = either(plain, products)
        share = work.time_ns(limited) / max(work.time_ns(work.kernels), 1)
        step_share = facts.share(facts.exposed(limited, Category.KERNEL))
        fusable = common(plain, work.kernels_where(work.by_kernel.is_fusable))
        unfused = without(fusable, work_on_parameters(facts.trace, facts.launches, facts.steps.kept_windows))
        compiled = common(plain, work.kernels_where(work.by_kernel.is_generated))
        fused, sampled = facts.exposed(unfused, Category.KERNEL), facts.run.device_telemetry
        if share < self.min_share or step_share < self.min_step_share:
            remark = None if share < self.min_share else "the GPU is idle most of the time"
            label, judged = "memory-bound share of kernel time", work.judged_share(_is_judged(work))
            missing = facts.missing(frozenset({Input.LAUNCHES, Input.SHAPES, Input.PEAK_RATES}))
            if missing and judged < LEAST_JUDGED_SHARE:
                return Skipped(missing)
            return Clear(label, share, self.min_share, Unit.SHARE, remark, judged_share=judged)
        if work.time_ns(compiled) > self.max_compiled_share * work.time_ns(plain):
            remark = "a compiler has fused these kernels already"
            return Clear("memory-bound share of kernel time", share, 1.0, Unit.SHARE, remark)
        if work.time_ns(unfused) < self.min_model_share * work.time_ns(fusable):
            remark = "most of these kernels update parameters, and compiling the model does not fuse them"
            return Clear("memory-bound share of kernel time", share, 1.0, Unit.SHARE, remark)
        busy = sampled.mean_memory_utilization_share if sampled else None
        return finding_of(
            facts,
            claims=fused,
            fix=Fix(
                "Fuse pointwise operations and move less data",
                change="model = torch.compile(model)",
                settings={"compile": True},
                not_replayed="which kernels a compiler would fuse is unknown",
                needs=frozenset({Part.MODEL}),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("memory-bound share of kernel time", share, Unit.SHARE),
                facts.time_per_step("time in pointwise operations, normalisation and reductions", fused),
                facts.known("memory utilisation (sampled)", busy, Unit.SHARE),
            ),
            most_ns=facts.per_step_ns(fused) * MOST_SPARED,
            caveats=("The first steps take longer while the model is compiled.",),
        )


def _is_judged(work: DeviceWork) -> Mask:
    """Return, for each kernel, whether it is known if memory limits it."""
    kernels = work.by_kernel
    known = np.isfinite(work.limits.least_ns) if work.limits else np.zeros(work.calls.kind.size, np.bool_)
    judged: Mask = (kernels.kind == PLAIN) | np.append(known, False)[kernels.call]
    return judged
