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
    """Float32 matmuls or convolutions do not use TF32 although the GPU supports it.

    What it finds: Kernel time of float32 matrix operations that do not run as TF32. Kernel names show this. If they do
        not, the captured settings do.
    Why it costs time: From compute capability 8.0, tensor cores multiply float32 matrices eight times as fast as
        CUDA cores. They round the inputs to TF32, which has 10 mantissa bits. PyTorch allows TF32 for convolutions but,
        since 1.12, not for matmuls.
    How to fix it: Call ``torch.set_float32_matmul_precision("high")`` for matmuls. Set
        ``torch.backends.cudnn.allow_tf32 = True`` for convolutions. Mixed precision saves more time but needs more
        care.
    How the saving is estimated: As for mixed precision (GPU001): the shapes of a call and the GPU's peak rates give its
        possible time in TF32. The step is simulated with these faster kernels. Without shapes or peak rates, the saving
        is an upper limit.
    When it may be wrong: TF32 changes numerics: factors keep 10 mantissa bits instead of 23. Keep full float32 for
        operations that need it.
    """

    meta = RuleMeta("GPU002", "tf32-off", "Float32 matrix operations do not use TF32")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.DEVICE_MODEL})
    popular_fix = "TF32"

    min_share: float = 0.05
    """Share of the step in such kernels. Less is not worth a change of numerics."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of float32 matrix operations without TF32 with the step."""
        work = facts.device_work
        float32 = work.calls.is_precision(Precision.FP32) & work.is_kept
        plain = float32 & work.is_run_in(Precision.FP32)
        claims = _time(facts, plain)
        share = facts.share(claims)
        if not has_tf32(facts.device):
            return Skipped("The GPU does not support TF32.")
        changes = [change for kind, change in CHANGES.items() if (plain & work.calls.is_kind(kind)).any()]
        speedups = work.in_type(Precision.TF32, plain)
        fix = narrower_type("Enable TF32 for float32 matrix operations", "; ".join(changes) or None, speedups)
        if share < self.min_share:
            unknown = float32 & ~plain & ~work.is_run_in(Precision.TF32)
            if facts.share(_time(facts, unknown)) >= self.min_share:
                return Skipped(
                    "Neither kernel names nor settings show whether TF32 was used: record with `traceadvisor capture`."
                )
            return facts.clear(
                "time in float32 matrix operations without TF32", share, self.min_share, Unit.SHARE, fix=fix
            )
        in_products, in_convolutions = (
            _time(facts, plain & work.calls.is_kind(kind)).total_ns / max(claims.total_ns, 1) for kind in CHANGES
        )
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("kernel time of float32 without TF32", claims),
                Evidence("share in matmuls", in_products, Unit.SHARE),
                Evidence("share in convolutions", in_convolutions, Unit.SHARE),
            ),
            most_ns=most_saved_ns(facts, fix, facts.per_step_ns(claims)),
            caveats=("Check that training still converges: TF32 rounds factors to 10 mantissa bits.",),
        )


def _time(facts: Facts, calls: Mask) -> SpanSet:
    return facts.exposed(facts.device_work.kernels_of(calls), Category.KERNEL)
