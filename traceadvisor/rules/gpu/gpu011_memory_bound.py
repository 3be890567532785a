"""GPU011: most kernel time goes into moving data, not into arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceadvisor.facts import Facts
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.rules.base import Rule

_WHY_A_BOUND = "which of the kernels a compiler would fuse is not known"


MOST_SPARED = 0.5
"""Share of the time of pointwise work, normalisation and reductions that fusing spares at most: two kernels that become
one read and write half as much."""


@dataclass(frozen=True, slots=True)
class MemoryBound(Rule):
    """The device is busy, but with kernels that memory limits.

    What it finds
        Kernel time of pointwise work, normalisation and reductions, and of products and convolutions that by their
        shapes must move more data than their arithmetic takes. Kernels too short to be limited by memory are left out.

    Why it costs time
        Every kernel reads its inputs from the device's memory and writes its outputs back, however little it does with
        them. A device with more arithmetic would be no faster.

    How to fix it
        Fuse: ``torch.compile``, fused optimizers and losses, scaled_dot_product_attention. Move less: 16-bit
        activations, channels_last for convolutions, in-place operations.

    How the saving is estimated
        As a bound: between nothing and half of the time of pointwise work, normalisation and reductions, which fusing
        pairs of kernels would spare. Products and convolutions that memory limits are said, not claimed: 16-bit types,
        which move half as much for them, are GPU001's.

    When it may be wrong
        What an earlier kernel left in the cache need not come from memory. Kernels that use few of the device's units
        are limited by neither memory nor arithmetic.
    """

    meta: ClassVar = RuleMeta(
        id="GPU011",
        name="memory-bound",
        title="Memory limits most of the kernel time",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.SHAPES, Input.PEAK_RATES}),
    )

    min_share: float = 0.5
    """Share of kernel time; below it, arithmetic is at least as much of a limit."""

    min_step_share: float = 0.3
    """Share of the step; with less, the device waits rather than moves data."""

    shortest_us: float = 5.0
    """Kernels below this are mostly start-up: in 5 µs the slowest device of the table moves a megabyte."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the time of kernels that memory limits with all kernel time."""
        work, events = facts.device_work, facts.trace.events
        plain = self._long(facts, work.plain_kernels)
        limited = np.union1d(plain, self._long(facts, self._limited(facts)))
        share = work.time_ns(limited) / max(work.time_ns(work.kernels), 1)
        spans = events.spans(limited) & facts.claim(Category.KERNEL)
        if share < self.min_share:
            return Clear("kernel time that memory limits", share, self.min_share, Unit.SHARE)
        if facts.share(spans) < self.min_step_share:
            return Clear(
                "kernel time that memory limits",
                share,
                self.min_share,
                Unit.SHARE,
                "the device is idle most of the time",
            )
        fused = events.spans(plain) & facts.claim(Category.KERNEL)
        return Finding(
            rule=self.meta,
            claims=fused,
            saving=facts.bound(facts.per_step_ns(fused) * MOST_SPARED, _WHY_A_BOUND),
            confidence=facts.confidence(),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("kernel time that memory limits", share, Unit.SHARE),
                Evidence("pointwise work, normalisation and reductions", facts.per_step_ns(fused), Unit.NS_PER_STEP),
                *self._sampled(facts),
            ),
            fix=Fix("Fuse pointwise work and move less data", change="model = torch.compile(model)"),
            caveats=("The first steps take longer while torch.compile compiles.",),
        )

    def _limited(self, facts: Facts) -> Int64:
        limits = facts.device_work.limits
        assert limits is not None  # noqa: S101  # Input.PEAK_RATES
        return facts.device_work.kernels_of(limits.is_memory_bound)

    def _long(self, facts: Facts, rows: Int64) -> Int64:
        return rows[facts.trace.events.duration_ns[rows] >= self.shortest_us * 1000]

    def _sampled(self, facts: Facts) -> tuple[Evidence, ...]:
        busy = facts.device_telemetry.mean_memory_utilization_share if facts.device_telemetry else None
        return () if busy is None else (Evidence("memory busy, as sampled", busy, Unit.SHARE),)
