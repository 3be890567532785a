"""IDLE003: many short gaps between kernels that were already launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.launches import CloserKernels
from traceadvisor.rules.base import Rule


@dataclass(frozen=True, slots=True)
class KernelGaps(Rule):
    """Kernels stand in the queue, and the device still pauses between one and the next.

    What it finds
        Short stretches in which the device does nothing although its next operation had been launched before it ran
        dry: the time it takes to end one kernel and begin another.

    Why it costs time
        Each change of kernel costs about a microsecond. Where kernels last no longer than ten, that is a noticeable
        part of the step, and launching earlier does not help.

    How to fix it
        Fewer and larger kernels: ``torch.compile`` fuses elementwise operators, fused or ``foreach`` optimizers update
        all parameters at once, a larger batch gives each kernel more to do. CUDA graphs bring kernels closer together.

    How the saving is estimated
        The step is replayed with gaps of 0.55 of their length, as CUDA graphs were measured to leave them (at the least
        0.8, at the most a tenth, as after fusion). Where the replay is not to be believed, a bound: between nothing and
        all of these gaps.

    When it may be wrong
        Profilers lengthen gaps a little. A gap in which a kernel waits for another stream is not told apart where it is
        short.
    """

    meta: ClassVar = RuleMeta(
        id="IDLE003",
        name="kernel-gaps",
        title="Many short gaps between kernels that were already launched",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES}),
    )

    min_share: float = 0.05
    """Share of the step; about 1% is usual, and closer kernels save half of it at best."""

    short_gap_us: float = 20.0
    """A gap from one queued kernel to the next lasts 1 to 10 µs, whoever made the device; longer ones are waits."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the time in short gaps with the step."""
        gaps = facts.claim(Category.IDLE_DEVICE)
        gaps -= gaps.lasting(self.short_gap_us * 1000)
        share = facts.share(gaps)
        if share < self.min_share:
            return Clear("short gaps between queued kernels", share, self.min_share, Unit.SHARE)
        fix = CloserKernels()
        saving = facts.what_if(fix, facts.per_step_ns(gaps))
        return Finding(
            rule=self.meta,
            claims=gaps,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.REFACTOR,
            evidence=_evidence(facts, gaps),
            fix=Fix(
                "Run fewer, larger kernels: fuse elementwise operators and the optimizer, capture graphs",
                change='model = torch.compile(model, mode="reduce-overhead")',
            ),
            caveats=("Profilers lengthen the gaps a little.",),
            what_ifs=(fix,),
        )


def _evidence(facts: Facts, gaps: SpanSet) -> tuple[Evidence, ...]:
    events, steps = facts.trace.events, max(len(facts.steps.kept), 1)
    kernels = facts.launches.work_rows[events.kind[facts.launches.work_rows] == Kind.KERNEL]
    kernels = kernels[facts.steps.kept_windows.contains(events.start_ns[kernels])]
    return (
        Evidence("device idle in short gaps", facts.per_step_ns(gaps), Unit.NS_PER_STEP),
        Evidence("such gaps", len(gaps) / steps, Unit.PER_STEP),
        Evidence("median gap", float(np.median(gaps.ends_ns - gaps.starts_ns)), Unit.NS),
        Evidence("kernels", kernels.size / steps, Unit.PER_STEP),
        *(  # there are none where all began before a window
            [Evidence("median kernel", float(np.median(events.duration_ns[kernels])), Unit.NS)] if kernels.size else []
        ),
    )
