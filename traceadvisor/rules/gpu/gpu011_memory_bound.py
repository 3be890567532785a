"""GPU011: most kernel time goes into moving data, not into arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit

MOST_SPARED = 0.5
"""Share of the time of pointwise work, normalisation and reductions that fusing spares at most: two kernels that become
one read and write half as much."""


@dataclass(frozen=True, slots=True)
class MemoryBound(Rule):
    """The device is busy, but with kernels that memory limits.

    What it finds: Kernel time of pointwise work, normalisation and reductions, and of products and convolutions that by
        their shapes must move more data than their arithmetic takes. Kernels too short to be limited by memory are left
        out.
    Why it costs time: Every kernel reads its inputs from the device's memory and writes its outputs back, however
        little it does with them. A device with more arithmetic would be no faster.
    How to fix it: Fuse: ``torch.compile``, fused optimizers and losses, scaled_dot_product_attention. Move less: 16-bit
        activations, channels_last for convolutions, in-place operations.
    How the saving is estimated: As a bound: between nothing and half of the time of pointwise work, normalisation and
        reductions, which fusing pairs of kernels would spare. Products and convolutions that memory limits are said,
        not claimed: 16-bit types, which move half as much for them, are GPU001's.
    When it may be wrong: What an earlier kernel left in the cache need not come from memory. Kernels that use few of
        the device's units are limited by neither memory nor arithmetic.
    """

    meta = RuleMeta("GPU011", "memory-bound", "Memory limits most of the kernel time")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.SHAPES, Input.PEAK_RATES})

    min_share: float = 0.5
    """Share of kernel time; below it, arithmetic is at least as much of a limit."""

    min_step_share: float = 0.3
    """Share of the step; with less, the device waits rather than moves data."""

    shortest_us: float = 5.0
    """Kernels below this are mostly start-up: in 5 µs the slowest device of the table moves a megabyte."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of kernels that memory limits with all kernel time."""
        work, limits = facts.device_work, facts.needed(facts.device_work.limits, Input.PEAK_RATES)
        is_long = facts.trace.events.duration_ns >= self.shortest_us * 1000
        plain, products = work.plain_kernels, work.kernels_of(limits.is_memory_bound)
        plain, products = plain[is_long[plain]], products[is_long[products]]
        limited = np.union1d(plain, products)
        share = work.time_ns(limited) / max(work.time_ns(work.kernels), 1)
        step_share = facts.share(facts.exposed(limited, Category.KERNEL))
        if share < self.min_share or step_share < self.min_step_share:
            remark = None if share < self.min_share else "the device is idle most of the time"
            return Clear("kernel time that memory limits", share, self.min_share, Unit.SHARE, remark)
        fused, sampled = facts.exposed(plain, Category.KERNEL), facts.run.device_telemetry
        busy = sampled.mean_memory_utilization_share if sampled else None
        return facts.finding(
            claims=fused,
            fix=Fix(
                "Fuse pointwise work and move less data",
                change="model = torch.compile(model)",
                not_replayed="which of the kernels a compiler would fuse is not known",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("kernel time that memory limits", share, Unit.SHARE),
                facts.time_per_step("pointwise work, normalisation and reductions", fused),
                facts.known("memory busy, as sampled", busy, Unit.SHARE),
            ),
            most_ns=facts.per_step_ns(fused) * MOST_SPARED,
            caveats=("The first steps take longer while torch.compile compiles.",),
        )
