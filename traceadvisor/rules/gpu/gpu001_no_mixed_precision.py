"""GPU001: matrix work runs in float32 on a device with tensor cores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.hardware.devices import Precision
from traceadvisor.hardware.tensor_cores import has_tensor_cores, most_speedup, narrow_type
from traceadvisor.model.arrays import Mask
from traceadvisor.model.breakdown import Category
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit
from traceadvisor.rules.gpu.narrower_types import most_saved_ns, narrower_type

IN_BFLOAT16 = (
    "Run the forward pass and the loss in mixed precision",
    'with torch.autocast("cuda", dtype=torch.bfloat16): loss = criterion(model(x), y)',
)
IN_FLOAT16 = (
    "Run the forward pass and the loss in mixed precision, with the loss scaled",
    'with torch.autocast("cuda", dtype=torch.float16): loss = criterion(model(x), y); '
    "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
)


@dataclass(frozen=True, slots=True)
class NoMixedPrecision(Rule):
    """Matrix products, convolutions and attention run in float32 although the device has tensor cores.

    What it finds: Kernel time launched by matrix operators that multiply float32, judged by the recorded types of the
        operator that launches the work, not by the names of kernels.
    Why it costs time: Tensor cores multiply 16-bit matrices many times faster than the ordinary cores multiply float32
        ones, and 16-bit values take half the memory traffic.
    How to fix it: Run the forward pass and the loss under ``torch.autocast``. With float16, scale the loss with
        ``GradScaler``; bfloat16 needs none where the device has it (NVIDIA from compute capability 8.0 on, AMD
        Instinct).
    How the saving is estimated: For each call the operations and the least memory traffic follow from its shapes, and
        from the device's peak rates how fast it could be in 16 bits. It is taken to come as close to that as it comes
        to its limit in float32, but not closer than calls of its kind do. The step is replayed with kernels that much
        faster. Without shapes a bound: between nothing and what the ratio of the peak rates leaves.
    When it may be wrong: It changes numerics: check that training still converges. Float32 may already run on tensor
        cores, rounded to TF32, which types do not show; then the gain is at most about two. Casts take time; pointwise
        work in 16 bits saves some, which is not counted.
    """

    meta = RuleMeta("GPU001", "no-mixed-precision", "Matrix work runs in float32 on a device with tensor cores")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.DEVICE_MODEL})
    refines = frozenset({"GPU002"})
    popular_fix = "Mixed precision"

    min_share: float = 0.05
    """Share of the step in eligible kernels; below it the casts cost as much as they gain."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the eligible kernel time with the step."""
        device, work = facts.needed(facts.device, Input.DEVICE_MODEL), facts.device_work
        calls = work.calls.is_precision(Precision.FP32)
        eligible = facts.exposed(work.kernels_of(calls), Category.KERNEL)
        share = facts.share(eligible)
        if not has_tensor_cores(device):
            return Clear("float32 matrix work", share, 1.0, Unit.SHARE, "the device has no tensor cores")
        narrow, ratio = narrow_type(device), most_speedup(device)
        change = IN_BFLOAT16 if narrow is Precision.BF16 else IN_FLOAT16
        fix = narrower_type(*change, work.in_type(narrow, calls & work.is_kept))
        if share < self.min_share:
            return facts.clear("float32 matrix work", share, self.min_share, Unit.SHARE, fix=fix)
        eligible_ns = facts.per_step_ns(eligible)
        kernel_ns = facts.per_step_ns(facts.claim(Category.KERNEL))
        most_ns = most_saved_ns(facts, fix, eligible_ns)
        return facts.finding(
            claims=eligible,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("kernel time of float32 matrix work", eligible),
                Evidence("share of all kernel time", eligible_ns / max(kernel_ns, 1.0), Unit.SHARE),
                facts.known("peak 16-bit rate over peak float32 rate", ratio or None, Unit.RATIO),
                facts.known(
                    "these kernels together, as many times as fast in 16 bits", _together(facts, fix), Unit.RATIO
                ),
            ),
            most_ns=most_ns if fix.what_if or not ratio else eligible_ns * (1 - 1 / ratio),
            caveats=("It changes numerics: check that training still converges.", *_tf32(work, calls)),
        )


def _together(facts: Facts, fix: Fix) -> float | None:
    """How many times as fast the kernels are expected to be, all together; None where that is not known."""
    if not isinstance(fix.what_if, FasterKernels):
        return None
    durations_ns = facts.trace.events.duration_ns[fix.what_if.rows].astype(np.float64)
    return float(durations_ns.sum() / max((durations_ns / fix.what_if.expected).sum(), 1.0))


def _tf32(work: DeviceWork, calls: Mask) -> tuple[str, ...]:
    """What to say of float32 that does not, or may not, run as float32."""
    if work.is_run_in(Precision.FP32)[calls].all():
        return ()
    if work.is_run_in(Precision.TF32)[calls].any():
        return ("Part of it already runs as TF32, which is taken into account.",)
    return ("Convolutions may already run as TF32 on this device; then the gain is at most about two.",)
