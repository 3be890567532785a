"""GPU002: float32 matrix work does not use the tensor cores, as TF32 would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.facts import Facts
from traceadvisor.hardware.devices import Precision
from traceadvisor.hardware.tensor_cores import has_tf32
from traceadvisor.model.arrays import Mask
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Rule

_WHY_A_BOUND = "no shapes and rates tell how much faster its calls would be"


@dataclass(frozen=True, slots=True)
class Tf32Off(Rule):
    """Float32 matrix products or convolutions run on the ordinary cores, although the device has TF32.

    What it finds
        Kernel time of matrix work on float32 that was not rounded to TF32, as the names of its kernels tell or, where
        they tell nothing, the settings of the run.

    Why it costs time
        From compute capability 8.0 on, tensor cores multiply float32 matrices eight times as fast as the other cores
        if they may round the factors to 10 bits of mantissa. PyTorch allows that for convolutions but, since 1.12, not
        for matrix products.

    How to fix it
        ``torch.set_float32_matmul_precision("high")`` for matrix products, ``torch.backends.cudnn.allow_tf32 = True``
        for convolutions. Mixed precision gains more, and costs more thought.

    How the saving is estimated
        Like that of mixed precision: from each call's shapes and the device's peak rates follows how fast it could be
        in TF32, and the step is replayed with kernels that much faster. Without shapes or rates, as a bound.

    When it may be wrong
        It changes numerics: factors keep 10 bits of mantissa instead of 23. What needs full float32 must stay.
    """

    meta: ClassVar = RuleMeta(
        id="GPU002",
        name="tf32-off",
        title="Float32 matrix work does without TF32",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.DEVICE_MODEL}),
    )
    popular_fix: ClassVar = "TF32"

    min_share: float = 0.05
    """Share of the step in such kernels; less is not worth a change of numerics."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the kernel time of float32 that stayed float32 with the step."""
        work = facts.device_work
        float32 = work.calls.is_precision(Precision.FP32) & work.is_kept
        plain = float32 & work.is_run_in(Precision.FP32)
        claims = _time(facts, plain)
        share = facts.share(claims)
        label = "matrix work in float32 without TF32"
        if not has_tf32(facts.device):
            return Skipped("The device has no TF32.")
        edit = _edit(work, plain)
        if share < self.min_share:
            unknown = float32 & ~plain & ~work.is_run_in(Precision.TF32)
            if facts.share(_time(facts, unknown)) >= self.min_share:
                return Skipped(
                    "Neither kernels nor settings tell whether float32 ran as TF32: record with `traceadvisor capture`."
                )
            why_not = None if edit else _WHY_A_BOUND
            return Clear(label, share, self.min_share, Unit.SHARE, what_if=edit, not_replayed=why_not)
        saving = _saving(facts, edit, facts.per_step_ns(claims))
        return Finding(
            rule=self.meta,
            claims=claims,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.SETTING,
            evidence=(
                Evidence("kernel time of float32 without TF32", facts.per_step_ns(claims), Unit.NS_PER_STEP),
                Evidence("in matrix products", _share_of(facts, claims, plain, Kind.MATMUL), Unit.SHARE),
                Evidence("in convolutions", _share_of(facts, claims, plain, Kind.CONVOLUTION), Unit.SHARE),
            ),
            fix=_fix(work, plain),
            caveats=("It changes numerics: factors are rounded to 10 bits of mantissa.",),
            what_ifs=(edit,) if edit else (),
        )


def _time(facts: Facts, calls: Mask) -> SpanSet:
    return facts.trace.events.spans(facts.device_work.kernels_of(calls)) & facts.claim(Category.KERNEL)


def _share_of(facts: Facts, claims: SpanSet, calls: Mask, kind: Kind) -> float:
    of_kind = _time(facts, calls & facts.device_work.calls.is_kind(kind))
    return of_kind.total_ns / max(claims.total_ns, 1)


def _edit(work: DeviceWork, calls: Mask) -> FasterKernels | None:
    speedups = work.in_type(Precision.TF32, calls)
    if speedups is None or not (speedups.high > 1).any():
        return None
    return FasterKernels(speedups.rows, speedups.low, speedups.expected, speedups.high)


def _saving(facts: Facts, edit: FasterKernels | None, time_ns: float) -> Estimate:
    if edit is None:
        return facts.bound(time_ns, _WHY_A_BOUND)
    durations_ns = facts.trace.events.duration_ns[edit.rows]
    saved_ns = float((durations_ns * (1 - 1 / edit.high)).sum()) / len(facts.steps.kept)
    return facts.what_if(edit, min(saved_ns, time_ns))


def _fix(work: DeviceWork, calls: Mask) -> Fix:
    changes = {
        Kind.MATMUL: 'torch.set_float32_matmul_precision("high")',
        Kind.CONVOLUTION: "torch.backends.cudnn.allow_tf32 = True",
    }
    found = [change for kind, change in changes.items() if (calls & work.calls.is_kind(kind)).any()]
    return Fix("Let float32 matrix work use TF32", change="; ".join(found) or None)
