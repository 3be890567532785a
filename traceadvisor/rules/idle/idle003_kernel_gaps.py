"""IDLE003: many short gaps between kernels that were already launched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.model.breakdown import Category
from traceadvisor.replay.fixes.launches import CloserKernels
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class KernelGaps(Rule):
    """Kernels stand in the queue, and the device still pauses between one and the next.

    What it finds: Short stretches in which the device does nothing although its next operation had been launched before
        it ran dry: the time it takes to end one kernel and begin another.
    Why it costs time: Each change of kernel costs about a microsecond. Where kernels last no longer than ten, that is a
        noticeable part of the step, and launching earlier does not help.
    How to fix it: Fewer and larger kernels: ``torch.compile`` fuses elementwise operators, fused or ``foreach``
        optimizers update all parameters at once, a larger batch gives each kernel more to do. CUDA graphs bring kernels
        closer together.
    How the saving is estimated: The step is replayed with gaps of 0.55 of their length, as CUDA graphs were measured to
        leave them (at the least 0.8, at the most a tenth, as after fusion).
    When it may be wrong: Profilers lengthen gaps a little. A gap in which a kernel waits for another stream is not told
        apart where it is short.
    """

    meta = RuleMeta("IDLE003", "kernel-gaps", "Many short gaps between kernels that were already launched")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})

    min_share: float = 0.05
    """Share of the step; about 1% is usual, and closer kernels save half of it at best."""

    short_gap_us: float = 20.0
    """A gap from one queued kernel to the next lasts 1 to 10 µs, whoever made the device; longer ones are waits."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time in short gaps with the step."""
        gaps = facts.claim(Category.IDLE_DEVICE)
        gaps -= gaps.lasting(self.short_gap_us * 1000)
        share = facts.share(gaps)
        if share < self.min_share:
            return Clear("short gaps between queued kernels", share, self.min_share, Unit.SHARE)
        kernels_ns = facts.trace.events.duration_ns[facts.device_work.kernels]
        median_ns = float(np.median(kernels_ns)) if kernels_ns.size else None  # all may begin before a window
        return facts.finding(
            claims=gaps,
            fix=Fix(
                "Run fewer, larger kernels: fuse elementwise operators and the optimizer, capture graphs",
                change='model = torch.compile(model, mode="reduce-overhead")',
                what_if=CloserKernels(),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("device idle in short gaps", gaps),
                facts.count_per_step("such gaps", len(gaps)),
                Evidence("median gap", float(np.median(gaps.ends_ns - gaps.starts_ns)), Unit.NS),
                facts.count_per_step("kernels", kernels_ns.size),
                facts.known("median kernel", median_ns, Unit.NS),
            ),
            caveats=("Profilers lengthen the gaps a little.",),
        )
