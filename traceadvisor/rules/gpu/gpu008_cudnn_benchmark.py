from __future__ import annotations

import numpy as np

from traceadvisor.analysis.arithmetic.roofline import REACH, Case
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.arrays import Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import (
    Category,
    Facts,
    Input,
    Option,
    Outcome,
    Part,
    Rule,
    RuleMeta,
    clear_of,
    finding_of,
    frozen,
)

BEST_IN_FLOAT32 = 0.8
"""Share of the GPU's limit that good float32 algorithms reach. In a ResNet-50 on a V100 without autotuning, half of the
convolutions are below 0.6 (pytorch/kineto, TensorBoard plugin samples)."""

MOST_SPARED = 0.5
"""Largest share of their time that autotuning is assumed to save: all algorithms do the same work."""


BEYOND = "convolution time beyond good algorithms"

FIX = Fix(
    "Enable cuDNN autotuning",
    "torch.backends.cudnn.benchmark = True",
    settings={"cudnn_benchmark": True},
    needs=frozenset({Part.MODEL}),
    not_replayed="the algorithms that autotuning would choose, and their speed, are unknown",
)


@frozen
class CudnnBenchmark(Rule):
    """Convolution autotuning is off although the shapes of convolutions do not change.

    What it finds: Kernel time of convolutions whose shapes are the same in every recorded step, if the capture shows
        that ``torch.backends.cudnn.benchmark`` is off.
    Why it costs time: A heuristic chooses one of several algorithms. Autotuning tries each once per shape and keeps the
        fastest.
    How to fix it: Set ``torch.backends.cudnn.benchmark = True`` before training. The first step then takes longer.
    How the saving is estimated: Upper limit: the time that convolutions take beyond good algorithms, at most half.
        Shapes and peak rates give the shortest possible time; good algorithms reach 0.8 of this limit in float32 and
        0.5 on tensor cores.
    When it may be wrong: The heuristic is often right. Autotuning needs memory for workspaces, so the largest possible
        batch is smaller. If shapes do change, each new one is tuned again, which costs more than it saves.
    """

    meta = RuleMeta("GPU008", "cudnn-benchmark", "cuDNN autotuning is off although convolution shapes are constant")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    of_cuda = True
    popular_fix = "cuDNN autotuning"
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.02
    """Share of the step that autotuning could save at most. Less is not worth the memory."""

    fewest_steps: int = 2
    """Steps to compare. A single step does not show whether shapes change."""

    def check(self, facts: Facts) -> Outcome:
        work = facts.device_work
        is_convolution = work.by_kernel.is_kind(Kind.CONVOLUTION)
        step_ns = max(facts.steps.typical_windows.total_ns, 1)
        half = work.time_ns(work.kernels_where(is_convolution)) * MOST_SPARED / step_ns
        if half < self.min_share:
            judged, label = work.judged_share(work.by_kernel.is_known), "half of the time in convolutions"
            return clear_of(facts, label, half, self.min_share, fix=FIX, judged_share=judged)
        if missing := facts.missing(frozenset({Input.LAUNCHES, Input.SHAPES, Input.PEAK_RATES})):
            return Skipped(missing)
        convolutions = work.calls.is_kind(Kind.CONVOLUTION) & work.is_kept
        most_ns = _most_ns(facts, convolutions)
        share = most_ns * facts.step_count / step_ns
        if share < self.min_share:
            shaped = np.append(np.isfinite(work.calls.least_flops), False)[work.by_kernel.call]
            judged = work.judged_share(work.by_kernel.is_known & (~is_convolution | shaped))
            return clear_of(facts, BEYOND, share, self.min_share, fix=FIX, judged_share=judged)
        return self._untuned(facts, convolutions, most_ns, share)

    def _untuned(self, facts: Facts, convolutions: Mask, most_ns: float, share: float) -> Outcome:
        """Check whether autotuning is off and shapes are constant."""
        if facts.settings.cudnn_benchmark is None:
            return Skipped(facts.unknown_without("The autotuning setting was not recorded", Option.CAPTURE))
        if facts.settings.cudnn_benchmark:
            return Clear(BEYOND, share, 1.0, Unit.SHARE, "autotuning is on")
        if facts.step_count < self.fewest_steps:
            return Skipped("A single step does not show whether shapes change: record several steps.")
        if not _same_in_every_step(facts, convolutions):
            return Clear(BEYOND, share, 1.0, Unit.SHARE, "convolution shapes change between steps")
        claims = facts.exposed(facts.device_work.kernels_of(convolutions), Category.KERNEL)
        return finding_of(
            facts,
            claims=claims,
            fix=FIX,
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("kernel time of convolutions", claims),
                Evidence(BEYOND, most_ns, Unit.NS_PER_STEP),
            ),
            most_ns=most_ns,
            caveats=(
                "The largest possible batch is smaller, because workspaces need memory.",
                "Results may differ in the last digits between runs.",
            ),
        )


def _same_in_every_step(facts: Facts, convolutions: Mask) -> bool:
    """Return whether all typical steps have the same set of convolution shapes."""
    work, events = facts.device_work, facts.trace.events
    shapes = facts.trace.details.dims_id.at(work.calls.rows, np.int32(NONE))
    mine = convolutions[work.calls.kernel_call]
    starts = events.start_ns[work.calls.kernel_rows[mine]]
    of_kernel = shapes[work.calls.kernel_call[mine]]
    windows = [(step.start_ns, step.end_ns) for step in facts.steps.typical]
    return len({frozenset(of_kernel[(starts >= start) & (starts < end)].tolist()) for start, end in windows}) == 1


def _most_ns(facts: Facts, convolutions: Mask) -> float:
    work, least_ns = facts.device_work, facts.needed(facts.device_work.limits, Input.PEAK_RATES).least_ns
    duration_ns = work.calls.device_ns.astype(np.float64)
    reach = np.where(work.is_run_in(Precision.FP32), BEST_IN_FLOAT32, REACH[Kind.CONVOLUTION][Case.HIGH])
    beyond_ns = np.fmax(duration_ns - least_ns / reach, 0.0)
    spared_ns = np.where(np.isfinite(least_ns), np.minimum(duration_ns * MOST_SPARED, beyond_ns), 0.0)
    return float(spared_ns[convolutions].sum()) / facts.step_count
