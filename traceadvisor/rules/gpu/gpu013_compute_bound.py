"""GPU013: the device computes at a good rate, and nothing cheap makes it faster."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.hardware.devices import Precision
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

TENSOR_CORE_TYPES = (Precision.TF32, Precision.FP16, Precision.BF16, Precision.FP8, Precision.INT8)

NOT_BOUND = "there is more to gain than a faster device brings"


@dataclass(frozen=True, slots=True)
class ComputeBound(Rule):
    """The device is busy on its tensor cores at a good share of their peak.

    What it finds: Steps that are nearly all kernel time, with matrix work in types that tensor cores take, at a rate as
        large trainings report it.
    Why it costs time: It does not: this is what the device is for. Settings have little left to give.
    How to fix it: Compute less, or elsewhere: a smaller model, shorter sequences, fewer recomputed activations,
        narrower types where the model stands them, a faster device, more devices.
    How the saving is estimated: It is none. The evidence says what a device twice as fast at this arithmetic would save
        at most.
    When it may be wrong: Recomputed activations count as work: with checkpointing, part of the rate is no progress.
    """

    meta = RuleMeta("GPU013", "compute-bound", "The device computes at a good rate: no cheap fix is left")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.SHAPES, Input.PEAK_RATES})
    umbrella = True

    min_utilisation: float = 0.35
    """Share of the peak rate; large trainings report 0.38 to 0.43 (https://arxiv.org/abs/2407.21783, table 4)."""

    min_busy: float = 0.9
    """Share of the step in kernels; below it, waiting is the cheaper thing to end."""

    min_tensor_cores: float = 0.9
    """Share of matrix work's time in types that tensor cores take; below it, mixed precision is left to do."""

    def check(self, facts: Facts) -> Outcome:
        """Look for a busy device at a good rate."""
        work, busy = facts.device_work, facts.share(facts.claim(Category.KERNEL))
        rate, products = work.rate, work.kernels_of(work.is_kept)
        if rate is None:
            return Skipped("Of no matrix product it is known in which number type it ran.")
        if busy < self.min_busy:
            return Clear("device busy with kernels", busy, self.min_busy, Unit.SHARE, NOT_BOUND)
        on_tensor_cores_ns = sum(work.time_ns(work.kernels_of(work.is_run_in(each))) for each in TENSOR_CORE_TYPES)
        on_tensor_cores = on_tensor_cores_ns / max(work.time_ns(products), 1)
        if on_tensor_cores < self.min_tensor_cores:
            label = "matrix work in types that tensor cores take"
            return Clear(label, on_tensor_cores, self.min_tensor_cores, Unit.SHARE, NOT_BOUND)
        if rate.peak_share < self.min_utilisation:
            return Clear("share of the peak rate", rate.peak_share, self.min_utilisation, Unit.SHARE, NOT_BOUND)
        half = facts.share(facts.exposed(products, Category.KERNEL)) / 2
        return facts.finding(
            fix=Fix("Compute less, or on a faster device: settings have little left to give"),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("device busy with kernels", busy, Unit.SHARE),
                Evidence("arithmetic of products, convolutions and attention", rate.flops_per_s, Unit.FLOPS_PER_S),
                Evidence("share of the peak rate", rate.peak_share, Unit.SHARE),
                Evidence("saved at most by a device twice as fast at it, of the step", half, Unit.SHARE),
            ),
        )
