"""GPU008: convolutions of constant shape run with the first algorithm that comes to hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.arithmetic.roofline import REACH, Case
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.arrays import Mask
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

BEST_IN_FLOAT32 = 0.8
"""Share of the device's limit that good float32 algorithms reach; half of the convolutions of a ResNet-50 on a V100,
not autotuned, are at less than 0.6 (pytorch/kineto, TensorBoard plugin samples)."""

MOST_SPARED = 0.5
"""Share of their time that autotuning spares at most: the choice is between algorithms that all do the work."""


@dataclass(frozen=True, slots=True)
class CudnnBenchmark(Rule):
    """Autotuning of convolutions is off, although their shapes do not change.

    What it finds: Kernel time of convolutions whose shapes are the same in every recorded step, in a run with
        ``torch.backends.cudnn.benchmark`` off, as captured.
    Why it costs time: For each shape there are several algorithms. Without autotuning a rule of thumb chooses one; with
        it, the fastest is found by trying them once.
    How to fix it: ``torch.backends.cudnn.benchmark = True`` before training. The first step takes longer.
    How the saving is estimated: As a bound: between nothing and what the convolutions take longer than good algorithms
        do, which come to 0.8 of the limit that the device sets for their shapes in float32 and to 0.5 on tensor cores;
        half of their time at most.
    When it may be wrong: The rule of thumb is often right. Autotuning takes memory for workspaces, so that the largest
        batch that fits gets smaller. Where shapes change after all, every new one is searched for anew, which costs
        more than it gains.
    """

    meta = RuleMeta("GPU008", "cudnn-benchmark", "Convolutions of constant shape are not autotuned")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.SHAPES, Input.PEAK_RATES})
    popular_fix = "cuDNN autotuning"

    min_share: float = 0.02
    """Share of the step that autotuning could spare at most; less is not worth the memory."""

    fewest_steps: int = 2
    """Steps to compare: one does not tell whether shapes change."""

    def check(self, facts: Facts) -> Outcome:
        """Look for convolutions of constant shape in a run without autotuning."""
        work, label = facts.device_work, "convolutions, beyond what good algorithms take"
        convolutions = work.calls.is_kind(Kind.CONVOLUTION) & work.is_kept
        most_ns = _most_ns(facts, convolutions)
        share = most_ns * facts.step_count / max(facts.steps.kept_windows.total_ns, 1)
        fix = Fix(
            "Let algorithms be tried once and the fastest be kept",
            "torch.backends.cudnn.benchmark = True",
            not_replayed="which algorithms would be found, and how fast they are, is not known before they are tried",
        )
        if share < self.min_share:
            return facts.clear(label, share, self.min_share, Unit.SHARE, fix=fix)
        if facts.settings.cudnn_benchmark is None:
            return Skipped("Whether autotuning is on is not known: record with `traceadvisor capture`.")
        if facts.settings.cudnn_benchmark:
            return Clear(label, share, 1.0, Unit.SHARE, "they are autotuned")
        if facts.step_count < self.fewest_steps:
            return Skipped("One step does not tell whether shapes change: record several.")
        if not _same_in_every_step(facts, convolutions):
            return Clear(label, share, 1.0, Unit.SHARE, "their shapes change from step to step")
        claims = facts.exposed(work.kernels_of(convolutions), Category.KERNEL)
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("kernel time of convolutions", claims),
                Evidence(label, most_ns, Unit.NS_PER_STEP),
            ),
            most_ns=most_ns,
            caveats=(
                "Workspaces take memory: the largest batch that fits gets smaller.",
                "Results may differ in the last digits from run to run.",
            ),
        )


def _same_in_every_step(facts: Facts, convolutions: Mask) -> bool:
    """Whether every kept step's window holds kernels of the same set of shapes."""
    work, events = facts.device_work, facts.trace.events
    shapes = facts.trace.details.dims_id.at(work.calls.rows, np.int32(NONE))
    mine = convolutions[work.calls.kernel_call]
    starts = events.start_ns[work.calls.kernel_rows[mine]]
    of_kernel = shapes[work.calls.kernel_call[mine]]
    windows = [(step.start_ns, step.end_ns) for step in facts.steps.kept]
    return len({frozenset(of_kernel[(starts >= start) & (starts < end)].tolist()) for start, end in windows}) == 1


def _most_ns(facts: Facts, convolutions: Mask) -> float:
    work, least_ns = facts.device_work, facts.needed(facts.device_work.limits, Input.PEAK_RATES).least_ns
    duration_ns = work.calls.device_ns.astype(np.float64)
    reach = np.where(work.is_run_in(Precision.FP32), BEST_IN_FLOAT32, REACH[Kind.CONVOLUTION][Case.HIGH])
    beyond_ns = np.fmax(duration_ns - least_ns / reach, 0.0)
    spared_ns = np.where(np.isfinite(least_ns), np.minimum(duration_ns * MOST_SPARED, beyond_ns), 0.0)
    return float(spared_ns[convolutions].sum()) / facts.step_count
