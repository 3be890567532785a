"""GPU013: the device computes at a good rate, and nothing cheap makes it faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    Method,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Rule

TENSOR_CORE_TYPES = (Precision.TF32, Precision.FP16, Precision.BF16, Precision.FP8, Precision.INT8)

NOT_BOUND = "there is more to gain than a faster device brings"


@dataclass(frozen=True, slots=True)
class ComputeBound(Rule):
    """The device is busy on its tensor cores at a good share of their peak.

    What it finds
        Steps that are nearly all kernel time, with matrix work in types that tensor cores take, at a rate as large
        trainings report it.

    Why it costs time
        It does not: this is what the device is for. Settings have little left to give.

    How to fix it
        Compute less, or elsewhere: a smaller model, shorter sequences, fewer recomputed activations, narrower types
        where the model stands them, a faster device, more devices.

    How the saving is estimated
        It is none. The evidence says what a device twice as fast at this arithmetic would save at most.

    When it may be wrong
        Recomputed activations count as work: with checkpointing, part of the rate is no progress.
    """

    meta: ClassVar = RuleMeta(
        id="GPU013",
        name="compute-bound",
        title="The device computes at a good rate: no cheap fix is left",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.SHAPES, Input.PEAK_RATES}),
        umbrella=True,
    )

    min_utilisation: float = 0.35
    """Share of the peak rate; large trainings report 0.38 to 0.43 (https://arxiv.org/abs/2407.21783, table 4)."""

    min_busy: float = 0.9
    """Share of the step in kernels; below it, waiting is the cheaper thing to end."""

    min_tensor_cores: float = 0.9
    """Share of matrix work's time in types that tensor cores take; below it, mixed precision is left to do."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Look for a busy device at a good rate."""
        rate, busy = facts.device_work.rate, facts.share(facts.claim(Category.KERNEL))
        if rate is None:
            return Skipped("Of no matrix product it is known in which number type it ran.")
        if busy < self.min_busy:
            return Clear("device busy with kernels", busy, self.min_busy, Unit.SHARE, NOT_BOUND)
        on_tensor_cores = _on_tensor_cores(facts)
        if on_tensor_cores < self.min_tensor_cores:
            label = "matrix work in types that tensor cores take"
            return Clear(label, on_tensor_cores, self.min_tensor_cores, Unit.SHARE, NOT_BOUND)
        if rate.peak_share < self.min_utilisation:
            return Clear("share of the peak rate", rate.peak_share, self.min_utilisation, Unit.SHARE, NOT_BOUND)
        products = facts.share(self._products(facts))
        return Finding(
            rule=self.meta,
            claims=SpanSet.empty(),
            saving=Estimate(0.0, 0.0, 0.0, Method.MODEL),
            confidence=facts.confidence(),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("device busy with kernels", busy, Unit.SHARE),
                Evidence("arithmetic of products, convolutions and attention", rate.flops_per_s, Unit.FLOPS_PER_S),
                Evidence("share of the peak rate", rate.peak_share, Unit.SHARE),
                Evidence("saved at most by a device twice as fast at it, of the step", products / 2, Unit.SHARE),
            ),
            fix=Fix("Compute less, or on a faster device: settings have little left to give"),
        )

    def _products(self, facts: Facts) -> SpanSet:
        work = facts.device_work
        return facts.trace.events.spans(work.kernels_of(work.is_kept)) & facts.claim(Category.KERNEL)


def _on_tensor_cores(facts: Facts) -> float:
    """Share of the time of the calls that multiply matrices."""
    work = facts.device_work
    on_them = sum(work.time_ns(work.kernels_of(work.is_run_in(each))) for each in TENSOR_CORE_TYPES)
    return on_them / max(work.time_ns(work.kernels_of(work.is_kept)), 1)
