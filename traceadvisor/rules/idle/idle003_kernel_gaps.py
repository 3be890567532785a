from __future__ import annotations

import numpy as np

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.replay.fixes.launches import CloserKernels
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen


@frozen
class KernelGaps(Rule):
    """The GPU pauses between kernels although the next kernel is already queued.

    What it finds: Short gaps in which the GPU is idle although the CPU has already launched the next operation:
        kernel-launch latency, the time to end one kernel and start the next.
    Why it costs time: Each change of kernel costs about a microsecond, which is much beside kernels of ten microseconds
        or less. Earlier launches do not help.
    How to fix it: Run fewer and larger kernels. ``torch.compile`` fuses elementwise operators. Fused or ``foreach``
        optimizers update all parameters at once. A larger batch gives each kernel more to do. CUDA graphs shorten the
        gaps.
    How the saving is estimated: The step is simulated with gaps of 0.55 of their length, as measured with CUDA graphs
        (low: 0.8; high: 0.1, as after fusion).
    When it may be wrong: Profilers lengthen the gaps a little. A short gap may also be a wait for another stream.
    """

    meta = RuleMeta("IDLE003", "kernel-gaps", "Many short gaps between queued kernels")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES})
    of_cuda = True
    claims = frozenset({Category.IDLE_DEVICE})

    min_share: float = 0.05
    """Share of the step. About 1% is usual. Shorter gaps save at most half of it."""

    short_gap_us: float = 20.0
    """Gaps between queued kernels last 1 to 10 µs on GPUs of all vendors. Longer gaps are waits."""

    def check(self, facts: Facts) -> Outcome:
        gaps = facts.claim(Category.IDLE_DEVICE)
        gaps -= gaps.lasting(self.short_gap_us * 1000)
        share = facts.share(gaps)
        if share < self.min_share:
            return Clear("short gaps between queued kernels", share, self.min_share, Unit.SHARE)
        kernels_ns = facts.trace.events.duration_ns[facts.device_work.kernels]
        median_ns = float(np.median(kernels_ns)) if kernels_ns.size else None  # every kernel may begin before a window
        return finding_of(
            facts,
            claims=gaps,
            fix=Fix(
                "Run fewer, larger kernels: fuse elementwise operators, or use CUDA graphs",
                change='model = torch.compile(model, mode="reduce-overhead")',
                settings={"compile": True},
                what_if=CloserKernels(),
                needs=frozenset({Part.MODEL}),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("GPU idle time in short gaps", gaps),
                facts.count_per_step("short gaps", len(gaps)),
                Evidence("median gap duration", float(np.median(gaps.ends_ns - gaps.starts_ns)), Unit.NS),
                facts.count_per_step("kernels", kernels_ns.size),
                facts.known("median kernel duration", median_ns, Unit.NS),
            ),
            caveats=("Profilers lengthen the gaps a little.",),
        )
