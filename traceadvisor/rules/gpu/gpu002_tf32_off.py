from __future__ import annotations

import numpy as np

from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.hardware.devices import Precision, has_tf32
from traceadvisor.model.arrays import Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.spans import SpanSet
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
from traceadvisor.rules.gpu.narrower_types import NO_RATES, most_saved_ns, narrower_type, rate_bound_ns, to_check
from traceadvisor.rules.torch_api import has_api

CHANGES = {
    Kind.MATMUL: 'torch.backends.cuda.matmul.fp32_precision = "tf32"',
    Kind.CONVOLUTION: 'torch.backends.cudnn.conv.fp32_precision = "tf32"',
}
OLD_CHANGES = {
    Kind.MATMUL: 'torch.set_float32_matmul_precision("high")',
    Kind.CONVOLUTION: "torch.backends.cudnn.allow_tf32 = True",
}
"""The newer settings refuse to be mixed with the older ones, so only one kind is proposed: the newer one if the
recorded torch has it, and the older one, which all versions accept, if the version is unknown."""


@frozen
class Tf32Off(Rule):
    """Float32 matmuls or convolutions do not use TF32 although the GPU supports it.

    What it finds: Kernel time of float32 matrix operations that do not run as TF32, by kernel names, else by the
        captured settings.
    Why it costs time: From compute capability 8.0, tensor cores can multiply float32 matrices rounded to TF32 (10
        mantissa bits). By the published rates, this is eight times as fast as on CUDA cores of an A100, twice as fast
        on an A10, L4 or L40S, and no faster on an A10G, L40 or most GeForce cards. PyTorch allows TF32 for convolutions
        but, since 1.12, not for matmuls.
    How to fix it: Call ``torch.set_float32_matmul_precision("high")`` for matmuls. Set
        ``torch.backends.cudnn.allow_tf32 = True`` for convolutions. From torch 2.9, set
        ``torch.backends.cuda.matmul.fp32_precision`` and ``torch.backends.cudnn.conv.fp32_precision`` instead. Mixed
        precision saves more time but needs more care.
    How the saving is estimated: As for GPU001: shapes and peak rates give the possible time of a call in TF32, and the
        step is simulated with it. Without shapes: an upper limit from the ratio of the peak rates. GPUs with unknown
        rates are skipped.
    When it may be wrong: TF32 changes numerics: factors keep 10 mantissa bits instead of 23. Keep full float32 for
        operations that need it.
    """

    meta = RuleMeta("GPU002", "tf32-off", "Float32 matrix operations do not use TF32")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MODEL})
    of_cuda = True
    popular_fix = "TF32"
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.05
    """Share of the step in such kernels. Less is not worth a change of numerics."""

    min_ratio: float = 1.1
    """Peak rate in TF32 as a multiple of that in float32. At less, TF32 changes numerics for nothing."""

    def check(self, facts: Facts) -> Outcome:
        work, kernels = facts.device_work, facts.device_work.by_kernel
        float32 = kernels.is_stored_in(Precision.FP32)
        plain = float32 & kernels.is_run_in(Precision.FP32)
        rows, label = work.kernels_where(plain), "time in float32 matrix operations without TF32"
        claims = facts.exposed(rows, Category.KERNEL)
        share = facts.share(claims)
        if not has_tf32(facts.device):
            return Skipped("The GPU does not support TF32.")
        rate = work.row.flops_per_s(Precision.TF32) if work.row else None
        if work.row is None or rate is None:
            return Skipped(NO_RATES)
        ratio = rate / (work.row.flops_per_s(Precision.FP32) or np.inf)
        if ratio < self.min_ratio:
            return Skipped("This GPU multiplies no faster in TF32 than in float32.")
        speedups = work.in_type(
            Precision.TF32, work.is_stored_in(Precision.FP32) & work.is_run_in(Precision.FP32) & work.is_kept
        )
        change = _change(facts, plain)
        needs = frozenset({Part.MODEL})
        fix = Fix("Enable TF32 for float32 matrix operations", change, settings={"tf32": True}, needs=needs)
        fix = narrower_type(facts, fix, speedups, rows)
        if share < self.min_share:
            unknown = float32 & (kernels.precision == NONE)
            if facts.share(_time(facts, unknown)) >= self.min_share:
                reason = "Neither kernel names nor settings show whether TF32 was used"
                return Skipped(facts.unknown_without(reason, Option.CAPTURE))
            judged = work.judged_share(kernels.is_typed & ~unknown)
            return clear_of(facts, label, share, self.min_share, fix=fix, judged_share=judged)
        in_products, in_convolutions = (
            _time(facts, plain & kernels.is_kind(kind)).total_ns / max(claims.total_ns, 1) for kind in CHANGES
        )
        every = facts.trace.events.spans(rows) & facts.steps.typical_windows
        bound_ns = rate_bound_ns(work, work.row, plain, Precision.TF32, facts.per_step_ns(every))
        return finding_of(
            facts,
            claims=claims,
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("kernel time of float32 without TF32", claims),
                Evidence("share in matmuls", in_products, Unit.SHARE),
                Evidence("share in convolutions", in_convolutions, Unit.SHARE),
                Evidence("ratio of peak rates, TF32 to float32", ratio, Unit.RATIO),
            ),
            also_shortens=every,
            most_ns=most_saved_ns(facts, fix, facts.per_step_ns(every)) if fix.what_if else bound_ns,
            caveats=(f"Check {to_check(facts)}: TF32 rounds factors to 10 mantissa bits.",),
        )


def _change(facts: Facts, plain: Mask) -> str | None:
    """Return the settings for the kinds of operations that some kernels belong to; None if there is none."""
    version = facts.settings.torch_version
    is_new = version is not None and has_api(version, "torch.backends.cuda.matmul.fp32_precision")
    kernels = facts.device_work.by_kernel
    settings = (CHANGES if is_new else OLD_CHANGES).items()
    return "\n".join(change for kind, change in settings if (plain & kernels.is_kind(kind)).any()) or None


def _time(facts: Facts, kernels: Mask) -> SpanSet:
    return facts.exposed(facts.device_work.kernels_where(kernels), Category.KERNEL)
