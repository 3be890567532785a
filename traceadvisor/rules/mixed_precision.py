"""GPU001: matrix work runs in float32 on a device with tensor cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.analysis.matrix_work import float32_matrix_kernels
from traceadvisor.facts import Facts
from traceadvisor.hardware.tensor_cores import has_bfloat16, has_tensor_cores, most_speedup
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.rules.base import Rule


@dataclass(frozen=True, slots=True)
class NoMixedPrecision(Rule):
    """Matrix products, convolutions and attention run in float32 although the device has tensor cores.

    What it finds
        Kernel time launched by matrix operators whose floating-point inputs are all float32, judged by the recorded
        types of the operator that launches the work, not by the names of kernels.

    Why it costs time
        Tensor cores multiply 16-bit matrices many times faster than the ordinary cores multiply float32 ones, and
        16-bit values take half the memory traffic.

    How to fix it
        Run the forward pass and the loss under ``torch.autocast``. With float16, scale the loss with ``GradScaler``;
        bfloat16 needs none, from compute capability 8.0 on.

    How the saving is estimated
        As a bound: between nothing and what is left of this kernel time when it runs at the ratio of the device's
        peak rates. Work limited by memory gains at most about two.

    When it may be wrong
        It changes numerics: check that training still converges. From compute capability 8.0 on, convolutions (and
        matrix products, where allowed) may already run on tensor cores as TF32, which the types do not show; then the
        gain is at most about two. Small matrices gain little.
    """

    meta: ClassVar = RuleMeta(
        id="GPU001",
        name="no-mixed-precision",
        title="Matrix work runs in float32 on a device with tensor cores",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.DEVICE_MODEL}),
    )
    popular_fix: ClassVar = "Mixed precision"

    min_share: float = 0.05
    """Share of the step in eligible kernels; below it the casts cost as much as they gain."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the eligible kernel time with the step."""
        device = facts.device
        assert device is not None  # noqa: S101  # Input.DEVICE_MODEL
        kernels = float32_matrix_kernels(facts.trace, facts.launches, facts.tree)
        eligible = facts.trace.events.spans(kernels) & facts.claim(Category.KERNEL)
        share = facts.share(eligible)
        if not has_tensor_cores(device):
            return Clear("float32 matrix work", share, 1.0, Unit.SHARE, "the device has no tensor cores")
        if share < self.min_share:
            return Clear("float32 matrix work", share, self.min_share, Unit.SHARE)
        speedup = most_speedup(device)
        eligible_ns = facts.per_step_ns(eligible)
        kernel_ns = facts.per_step_ns(facts.claim(Category.KERNEL))
        return Finding(
            rule=self.meta,
            claims=eligible,
            saving=facts.bound(eligible_ns * (1 - 1 / speedup) if speedup else eligible_ns),
            confidence=facts.confidence(),
            effort=Effort.LINE,
            evidence=(
                Evidence("kernel time of float32 matrix work", eligible_ns, Unit.NS_PER_STEP),
                Evidence("share of all kernel time", eligible_ns / max(kernel_ns, 1.0), Unit.SHARE),
                *((Evidence("peak 16-bit rate over peak float32 rate", speedup, Unit.RATIO),) if speedup else ()),
            ),
            fix=_fix(bfloat16=has_bfloat16(device)),
            caveats=(
                "It changes numerics: check that training still converges.",
                *_TF32_CAVEAT[: int(has_bfloat16(device))],
            ),
        )


_TF32_CAVEAT = ("Convolutions may already run as TF32 on this device; then the gain is at most about two.",)


def _fix(*, bfloat16: bool) -> Fix:
    if bfloat16:
        return Fix(
            "Run the forward pass and the loss in mixed precision",
            change='with torch.autocast("cuda", dtype=torch.bfloat16): loss = criterion(model(x), y)',
        )
    return Fix(
        "Run the forward pass and the loss in mixed precision, with the loss scaled",
        change='with torch.autocast("cuda", dtype=torch.float16): loss = criterion(model(x), y); '
        "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
    )
