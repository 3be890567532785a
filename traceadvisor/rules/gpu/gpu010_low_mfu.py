from __future__ import annotations

import numpy as np

from traceadvisor.analysis.arithmetic.matrix_work import KINDS
from traceadvisor.analysis.arithmetic.roofline import REACH, Case
from traceadvisor.model.arrays import either
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen


@frozen
class LowMfu(Rule):
    """Matmuls, convolutions and attention keep the GPU busy, but far below its peak rate.

    What it finds: A busy GPU with a low model FLOPs utilisation (MFU): its rate as a share of the peak for the data
        types in use. Other rules cover GPUs that wait, and memory-bound kernels.
    Why it costs time: Small or thin matrices, and kernels designed for other shapes, leave most of the GPU idle.
    How to fix it: Give each call more work: a larger batch, packed sequences, merged weights of several layers,
        channels_last for convolutions. The evidence names the operator that loses the most time.
    How the saving is estimated: Upper limit: the time of calls beyond that of similar ones, which reach a known share
        of the shortest possible time by shapes and peak rates.
    When it may be wrong: FLOPs are counted as in torch: a causal mask is not deducted. Clocks may be low (power,
        temperature), whatever the code. A larger batch changes convergence.
    """

    meta = RuleMeta("GPU010", "low-mfu", "The GPU computes far below its peak rate")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.SHAPES, Input.PEAK_RATES})
    claims = frozenset({Category.KERNEL})

    min_utilisation: float = 0.2
    """Share of the peak rate. Large training runs report 0.38 to 0.43 (https://arxiv.org/abs/2407.21783, table 4)."""

    min_busy: float = 0.8
    """Share of the step in kernels. Below it, low utilisation only shows that the GPU waits."""

    max_limited: float = 0.5
    """Memory-bound share of kernel time. Above it, arithmetic is not the limit."""

    def check(self, facts: Facts) -> Outcome:
        rate, work = facts.device_work.rate, facts.device_work
        limits = facts.needed(work.limits, Input.PEAK_RATES)
        if rate is None:
            return Skipped("The data type of all matmuls is unknown: float32 may have run in fewer bits.")
        if not rate.is_whole:
            return Skipped("Too much kernel time has unknown FLOPs: replayed graphs, or operators of other libraries.")
        if rate.peak_share >= self.min_utilisation:
            label, judged = "share of the peak rate", rate.accounted_share
            return Clear(label, rate.peak_share, self.min_utilisation, Unit.SHARE, judged_share=judged, at_least=True)
        busy = facts.share(facts.claim(Category.KERNEL))
        if busy < self.min_busy:
            return Skipped(f"Kernels take {busy:.0%} of the step: first reduce waits, copies and communication.")
        limited_by_memory = either(work.plain_kernels, work.kernels_of(limits.is_memory_bound))
        limited = work.time_ns(limited_by_memory) / max(work.time_ns(work.kernels), 1)
        if limited > self.max_limited:
            remark = "arithmetic is not the limit"
            label, judged = "memory-bound share of kernel time", rate.accounted_share
            return Clear(label, limited, self.max_limited, Unit.SHARE, remark, judged_share=judged, at_least=True)
        reach = np.array([REACH[kind][Case.HIGH] for kind in KINDS])[work.calls.kind]
        beyond_ns = np.where(work.is_kept, np.fmax(work.calls.device_ns - limits.least_ns / reach, 0.0), 0.0)
        worst = facts.trace.names[facts.trace.events.name_id[work.calls.rows[np.argmax(beyond_ns)]]]
        return finding_of(
            facts,
            claims=facts.exposed(work.kernels_of(work.is_kept), Category.KERNEL),
            fix=Fix(
                "Give each matmul more work: larger batches, packed sequences, merged layers",
                not_replayed="why these calls stay below their limit is unknown, and so is the effect of a fix",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("achieved rate of matmuls, convolutions and attention", rate.flops_per_s, Unit.FLOPS_PER_S),
                Evidence("share of the peak rate, whole step", rate.peak_share, Unit.SHARE),
                Evidence("share of the peak rate, these kernels only", rate.own_peak_share, Unit.SHARE),
                Evidence("operator that loses the most time", worst, Unit.TEXT),
            ),
            most_ns=float(beyond_ns.sum()) / facts.step_count,
            caveats=("Review the learning rate: a larger batch changes convergence.",),
        )
