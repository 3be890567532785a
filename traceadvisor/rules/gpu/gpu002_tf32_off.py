"""GPU002: float32 matrix work does not use the tensor cores, as TF32 would."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.hardware.devices import Precision
from traceadvisor.hardware.tensor_cores import has_tf32
from traceadvisor.model.arrays import Mask
from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Effort, Evidence, Facts, Input, Outcome, Rule, RuleMeta, Skipped, Unit
from traceadvisor.rules.gpu.narrower_types import most_saved_ns, narrower_type

CHANGES = {
    Kind.MATMUL: 'torch.set_float32_matmul_precision("high")',
    Kind.CONVOLUTION: "torch.backends.cudnn.allow_tf32 = True",
}


@dataclass(frozen=True, slots=True)
class Tf32Off(Rule):
    """Float32 matrix products or convolutions run on the ordinary cores, although the device has TF32.

    What it finds: Kernel time of matrix work on float32 that was not rounded to TF32, as the names of its kernels tell
        or, where they tell nothing, the settings of the run.
    Why it costs time: From compute capability 8.0 on, tensor cores multiply float32 matrices eight times as fast as the
        other cores if they may round the factors to 10 bits of mantissa. PyTorch allows that for convolutions but,
        since 1.12, not for matrix products.
    How to fix it: ``torch.set_float32_matmul_precision("high")`` for matrix products, ``torch.backends.cudnn.allow_tf32
        = True`` for convolutions. Mixed precision gains more, and costs more thought.
    How the saving is estimated: Like that of mixed precision: from each call's shapes and the device's peak rates
        follows how fast it could be in TF32, and the step is replayed with kernels that much faster. Without shapes or
        rates, as a bound.
    When it may be wrong: It changes numerics: factors keep 10 bits of mantissa instead of 23. What needs full float32
        must stay.
    """

    meta = RuleMeta("GPU002", "tf32-off", "Float32 matrix work does without TF32")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.DEVICE_MODEL})
    popular_fix = "TF32"

    min_share: float = 0.05
    """Share of the step in such kernels; less is not worth a change of numerics."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the kernel time of float32 that stayed float32 with the step."""
        work = facts.device_work
        float32 = work.calls.is_precision(Precision.FP32) & work.is_kept
        plain = float32 & work.is_run_in(Precision.FP32)
        claims = _time(facts, plain)
        share = facts.share(claims)
        if not has_tf32(facts.device):
            return Skipped("The device has no TF32.")
        changes = [change for kind, change in CHANGES.items() if (plain & work.calls.is_kind(kind)).any()]
        speedups = work.in_type(Precision.TF32, plain)
        fix = narrower_type("Let float32 matrix work use TF32", "; ".join(changes) or None, speedups)
        if share < self.min_share:
            unknown = float32 & ~plain & ~work.is_run_in(Precision.TF32)
            if facts.share(_time(facts, unknown)) >= self.min_share:
                return Skipped(
                    "Neither kernels nor settings tell whether float32 ran as TF32: record with `traceadvisor capture`."
                )
            return facts.clear("matrix work in float32 without TF32", share, self.min_share, Unit.SHARE, fix=fix)
        in_products, in_convolutions = (
            _time(facts, plain & work.calls.is_kind(kind)).total_ns / max(claims.total_ns, 1) for kind in CHANGES
        )
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("kernel time of float32 without TF32", claims),
                Evidence("in matrix products", in_products, Unit.SHARE),
                Evidence("in convolutions", in_convolutions, Unit.SHARE),
            ),
            most_ns=most_saved_ns(facts, fix, facts.per_step_ns(claims)),
            caveats=("It changes numerics: factors are rounded to 10 bits of mantissa.",),
        )


def _time(facts: Facts, calls: Mask) -> SpanSet:
    return facts.exposed(facts.device_work.kernels_of(calls), Category.KERNEL)
