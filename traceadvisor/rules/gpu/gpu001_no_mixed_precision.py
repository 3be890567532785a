"""GPU001: matrix work runs in float32 on a device with tensor cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceadvisor.analysis.arithmetic.roofline import Speedups
from traceadvisor.facts import Facts
from traceadvisor.hardware.devices import Precision
from traceadvisor.hardware.tensor_cores import has_tensor_cores, most_speedup, narrow_type
from traceadvisor.model.arrays import Mask
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.trace import Device
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Rule

_WHY_A_BOUND = "no shapes and rates tell how much faster its calls would be"


@dataclass(frozen=True, slots=True)
class NoMixedPrecision(Rule):
    """Matrix products, convolutions and attention run in float32 although the device has tensor cores.

    What it finds
        Kernel time launched by matrix operators that multiply float32, judged by the recorded types of the operator
        that launches the work, not by the names of kernels.

    Why it costs time
        Tensor cores multiply 16-bit matrices many times faster than the ordinary cores multiply float32 ones, and
        16-bit values take half the memory traffic.

    How to fix it
        Run the forward pass and the loss under ``torch.autocast``. With float16, scale the loss with ``GradScaler``;
        bfloat16 needs none where the device has it (NVIDIA from compute capability 8.0 on, AMD Instinct).

    How the saving is estimated
        For each call the operations and the least memory traffic follow from its shapes, and from the device's peak
        rates how fast it could be in 16 bits. It is taken to come as close to that as it comes to its limit in float32,
        but not closer than calls of its kind do. The step is replayed with kernels that much faster. Where the replay
        is not to be believed, a bound: between nothing and what the most of these speed-ups leaves. Its middle is not
        theirs, for shapes tell how much faster the kernels get, not how much of that the step gains. Without shapes a
        bound as well: between nothing and what the ratio of the peak rates leaves.

    When it may be wrong
        It changes numerics: check that training still converges. Float32 may already run on tensor cores, rounded to
        TF32, which types do not show; then the gain is at most about two. Casts take time; pointwise work in 16 bits
        saves some, which is not counted.
    """

    meta: ClassVar = RuleMeta(
        id="GPU001",
        name="no-mixed-precision",
        title="Matrix work runs in float32 on a device with tensor cores",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.DEVICE_MODEL}),
        refines=frozenset({"GPU002"}),
    )
    popular_fix: ClassVar = "Mixed precision"

    min_share: float = 0.05
    """Share of the step in eligible kernels; below it the casts cost as much as they gain."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the eligible kernel time with the step."""
        device, work = facts.device, facts.device_work
        assert device is not None  # noqa: S101  # Input.DEVICE_MODEL
        calls = work.calls.is_precision(Precision.FP32)
        eligible = facts.trace.events.spans(work.kernels_of(calls)) & facts.claim(Category.KERNEL)
        share = facts.share(eligible)
        if not has_tensor_cores(device):
            return Clear("float32 matrix work", share, 1.0, Unit.SHARE, "the device has no tensor cores")
        edit = _edit(work.in_type(narrow_type(device), calls & work.is_kept))
        if share < self.min_share:
            why_not = None if edit else _WHY_A_BOUND
            return Clear("float32 matrix work", share, self.min_share, Unit.SHARE, what_if=edit, not_replayed=why_not)
        eligible_ns = facts.per_step_ns(eligible)
        kernel_ns = facts.per_step_ns(facts.claim(Category.KERNEL))
        saving = _saving(facts, device, edit, eligible_ns)
        return Finding(
            rule=self.meta,
            claims=eligible,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.LINE,
            evidence=(
                Evidence("kernel time of float32 matrix work", eligible_ns, Unit.NS_PER_STEP),
                Evidence("share of all kernel time", eligible_ns / max(kernel_ns, 1.0), Unit.SHARE),
                *_rates(device),
                *_foreseen(facts, edit),
            ),
            fix=_fix(narrow_type(device)),
            caveats=("It changes numerics: check that training still converges.", *_tf32(facts, calls)),
            what_ifs=(edit,) if edit else (),
        )


def _edit(speedups: Speedups | None) -> FasterKernels | None:
    """What to replay; None where nothing is known of what is to be gained."""
    if speedups is None or not (speedups.high > 1).any():
        return None
    return FasterKernels(speedups.rows, speedups.low, speedups.expected, speedups.high)


def _saving(facts: Facts, device: Device, edit: FasterKernels | None, eligible_ns: float) -> Estimate:
    if edit is not None:
        durations_ns = facts.trace.events.duration_ns[edit.rows]
        saved_ns = float((durations_ns * (1 - 1 / edit.high)).sum()) / len(facts.steps.kept)
        return facts.what_if(edit, min(saved_ns, eligible_ns))
    speedup = most_speedup(device)
    return facts.bound(eligible_ns * (1 - 1 / speedup) if speedup else eligible_ns, _WHY_A_BOUND)


def _rates(device: Device) -> tuple[Evidence, ...]:
    speedup = most_speedup(device)
    return (Evidence("peak 16-bit rate over peak float32 rate", speedup, Unit.RATIO),) if speedup else ()


def _foreseen(facts: Facts, edit: FasterKernels | None) -> tuple[Evidence, ...]:
    if edit is None:
        return ()
    durations_ns = facts.trace.events.duration_ns[edit.rows].astype(np.float64)
    return (
        Evidence(
            "these kernels together, as many times as fast in 16 bits",
            float(durations_ns.sum() / max((durations_ns / edit.expected).sum(), 1.0)),
            Unit.RATIO,
        ),
    )


def _tf32(facts: Facts, calls: Mask) -> tuple[str, ...]:
    """What to say of float32 that does not, or may not, run as float32."""
    work = facts.device_work
    if work.is_run_in(Precision.FP32)[calls].all():
        return ()
    if work.is_run_in(Precision.TF32)[calls].any():
        return ("Part of it already runs as TF32, which is taken into account.",)
    return ("Convolutions may already run as TF32 on this device; then the gain is at most about two.",)


def _fix(narrow: Precision) -> Fix:
    if narrow is Precision.BF16:
        return Fix(
            "Run the forward pass and the loss in mixed precision",
            change='with torch.autocast("cuda", dtype=torch.bfloat16): loss = criterion(model(x), y)',
        )
    return Fix(
        "Run the forward pass and the loss in mixed precision, with the loss scaled",
        change='with torch.autocast("cuda", dtype=torch.float16): loss = criterion(model(x), y); '
        "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()",
    )
