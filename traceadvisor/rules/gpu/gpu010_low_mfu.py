"""GPU010: the device is busy, but with little arithmetic for what it can do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.arithmetic.matrix_work import KINDS
from traceadvisor.analysis.arithmetic.roofline import REACH, Case
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class LowMfu(Rule):
    """Products, convolutions and attention keep the device busy, but far below its peak rate.

    What it finds: A busy device that does few of the operations it could do in the number types that the work is done
        in: a low model FLOPs utilisation. Devices that wait, and those that memory limits, are other rules' matter.
    Why it costs time: Small or thin matrices leave most of the device's units without work; so do kernels that were
        made for other shapes.
    How to fix it: Give each call more to do: a larger batch, longer sequences packed together, products of several
        layers' weights joined into one, convolutions in channels_last. The evidence names the operator that loses most.
    How the saving is estimated: As a bound: between nothing and what calls take beyond the share of their limit that
        calls of their kind reach.
    When it may be wrong: Operations count as torch counts them, a causal mask not deducted. Clocks below the boost
        clock (power, temperature) lower the rate for no fault of the code. A larger batch changes convergence.
    """

    meta = RuleMeta("GPU010", "low-mfu", "The device computes far below its peak rate")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.SHAPES, Input.PEAK_RATES})

    min_utilisation: float = 0.2
    """Share of the peak rate; large trainings report 0.38 to 0.43 (https://arxiv.org/abs/2407.21783, table 4)."""

    min_busy: float = 0.8
    """Share of the step in kernels; below it the device waits, and utilisation only says so again."""

    max_limited: float = 0.5
    """Share of kernel time that memory limits; above it, arithmetic is not what is short."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the achieved rate with the device's peak."""
        rate, work = facts.device_work.rate, facts.device_work
        limits = facts.needed(work.limits, Input.PEAK_RATES)
        if rate is None:
            return Skipped("Of no matrix product it is known in which number type it ran.")
        if not rate.is_whole:
            return Skipped(
                "Too much kernel time does work of unknown extent: CUDA graphs, or operators of other libraries."
            )
        if rate.peak_share >= self.min_utilisation:
            return Clear("share of the peak rate", rate.peak_share, self.min_utilisation, Unit.SHARE)
        busy = facts.share(facts.claim(Category.KERNEL))
        if busy < self.min_busy:
            return Skipped(
                f"Kernels take {busy:.0%} of the step: the rate of arithmetic would only say again that the device "
                "waits, copies or communicates."
            )
        limited_by_memory = np.union1d(work.plain_kernels, work.kernels_of(limits.is_memory_bound))
        limited = work.time_ns(limited_by_memory) / max(work.time_ns(work.kernels), 1)
        if limited > self.max_limited:
            remark = "it is not arithmetic that is short"
            return Clear("kernel time that memory limits", limited, self.max_limited, Unit.SHARE, remark)
        reach = np.array([REACH[kind][Case.HIGH] for kind in KINDS])[work.calls.kind]
        beyond_ns = np.where(work.is_kept, np.fmax(work.calls.device_ns - limits.least_ns / reach, 0.0), 0.0)
        worst = facts.trace.names[facts.trace.events.name_id[work.calls.rows[np.argmax(beyond_ns)]]]
        return facts.finding(
            claims=facts.exposed(work.kernels_of(work.is_kept), Category.KERNEL),
            fix=Fix(
                "Give each product more to do: larger batches, sequences packed together, layers' products joined",
                not_replayed="what keeps the calls below their limit is not known, nor what mending it would bring",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("arithmetic of products, convolutions and attention", rate.flops_per_s, Unit.FLOPS_PER_S),
                Evidence("share of the peak rate", rate.peak_share, Unit.SHARE),
                Evidence("the same while their own kernels run", rate.own_peak_share, Unit.SHARE),
                Evidence("operator that loses most", worst, Unit.TEXT),
            ),
            most_ns=float(beyond_ns.sum()) / facts.step_count,
            caveats=("A larger batch changes convergence: look at the learning rate again.",),
        )
