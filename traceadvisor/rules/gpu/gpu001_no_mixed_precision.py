from __future__ import annotations

import numpy as np

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.hardware.devices import Precision, has_tensor_cores, most_speedup, narrow_type
from traceadvisor.model.arrays import Mask
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, clear_of, finding_of, frozen
from traceadvisor.rules.gpu.narrower_types import NO_RATES, most_saved_ns, narrower_type, rate_bound_ns, to_check
from traceadvisor.rules.torch_api import has_api

SUMMARY = "Run the forward pass and the loss in mixed precision"

IN_BFLOAT16 = """\
with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = criterion(model(x), y)"""

IN_FLOAT16 = """\
scaler = {scaler}  # once, before the loop
with torch.autocast("cuda", dtype=torch.float16):
    loss = criterion(model(x), y)
scaler.scale(loss).backward()
scaler.unscale_(optimizer)  # only needed before clipping gradients
scaler.step(optimizer)
scaler.update()"""

SCALER, OLD_SCALER = 'torch.amp.GradScaler("cuda")', "torch.cuda.amp.GradScaler()"

IN_FORWARD = """\
with torch.autocast("cuda", dtype=torch.{dtype}):
    output = model(x)"""


@frozen
class NoMixedPrecision(Rule):
    """Matmuls, convolutions and attention run in float32 although the GPU has tensor cores.

    What it finds: Kernel time of matmuls, convolutions and attention with float32 inputs, by the recorded input types
        of the operator that launches a kernel, else by the kernel's name. Kernels below 10 µs do not count: 16 bits
        do not shorten them measurably.
    Why it costs time: Tensor cores multiply 16-bit matrices many times faster than ordinary cores multiply float32
        matrices. 16-bit values also halve the memory traffic.
    How to fix it: Run the forward pass and the loss under ``torch.autocast``. Use bfloat16 if the GPU supports it
        (NVIDIA compute capability 8.0 or newer, AMD Instinct). With float16, also scale the loss with ``GradScaler``.
    How the saving is estimated: Shapes give the operations and the minimum memory traffic of a call; with the GPU's
        peak rates, these give its shortest possible time in float32 and in 16 bits. The call is assumed to reach the
        same share of this limit in both, at most what similar calls reach. The step is simulated with these kernels.
        Without shapes: an upper limit from the ratio of the peak rates, which counts matrix operations of unknown type
        as well.
    When it may be wrong: Mixed precision changes numerics: check that training still converges. Float32 may already run
        on tensor cores as TF32, which input types do not show; the speed-up is then at most about 2. Casts take time.
        What pointwise operations save is not counted.
    """

    meta = RuleMeta("GPU001", "no-mixed-precision", "Matrix operations run in float32 on a GPU with tensor cores")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MODEL})
    of_cuda = True
    refines = frozenset({"GPU002"})
    popular_fix = "Mixed precision"
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.05
    """Share of the step that 16 bits could save at most. Below it, the cost of casts cancels the saving."""

    short_kernel_us: float = 10.0
    """A shorter kernel takes less time than its launch: fixed costs limit it, not its arithmetic."""

    def check(self, facts: Facts) -> Outcome:
        device, work = facts.needed(facts.device, Input.DEVICE_MODEL), facts.device_work
        is_long = facts.trace.events.duration_ns[work.kernels] >= self.short_kernel_us * 1000
        float32 = work.by_kernel.is_stored_in(Precision.FP32) & is_long
        rows = work.kernels_where(float32)
        eligible = facts.exposed(rows, Category.KERNEL)
        if not has_tensor_cores(device):
            label, share = "time in float32 matrix operations", facts.share(eligible)
            return Clear(label, share, 1.0, Unit.SHARE, "the GPU has no tensor cores")
        if work.row is None:
            return Skipped(NO_RATES)
        narrow, ratio = narrow_type(device), most_speedup(device)
        speedups = work.in_type(narrow, work.is_stored_in(Precision.FP32) & work.is_kept)
        fix = narrower_type(facts, _fix(facts, narrow), speedups, rows, has_casts=True)
        eligible_ns = facts.per_step_ns(eligible)
        kernel_ns = facts.per_step_ns(facts.claim(Category.KERNEL))
        most_ns = most_saved_ns(facts, fix, rate_bound_ns(work, work.row, float32, narrow, eligible_ns))
        share = facts.share(eligible) * most_ns / max(eligible_ns, 1.0)
        if share < self.min_share:
            judged = work.judged_share(work.by_kernel.is_typed)
            label = "upper limit of the saving by 16-bit matrix operations"
            return clear_of(facts, label, share, self.min_share, fix=fix, judged_share=judged)
        may_be = float32 | (work.by_kernel.is_matrix & ~work.by_kernel.is_typed & is_long)
        every = facts.trace.events.spans(work.kernels_where(may_be)) & facts.steps.typical_windows
        every_ns = rate_bound_ns(work, work.row, may_be, narrow, facts.per_step_ns(every))
        return finding_of(
            facts,
            claims=eligible,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("kernel time of float32 matrix operations", eligible),
                Evidence("share of kernel time", eligible_ns / max(kernel_ns, 1.0), Unit.SHARE),
                facts.known("ratio of peak rates, 16-bit to float32", ratio or None, Unit.RATIO),
                facts.known("estimated 16-bit speed-up of these kernels", _together(facts, fix), Unit.RATIO),
            ),
            also_shortens=every,
            most_ns=most_saved_ns(facts, fix, every_ns),
            caveats=(f"Check {to_check(facts)}: mixed precision changes numerics.", *_tf32(work, float32)),
        )


def _fix(facts: Facts, narrow: Precision) -> Fix:
    """Return the change for the recorded torch version; not simulated yet."""
    dtype = "bfloat16" if narrow is Precision.BF16 else "float16"
    scaler = SCALER if has_api(facts.settings.torch_version, "torch.amp.GradScaler") else OLD_SCALER
    summary, change = SUMMARY, IN_BFLOAT16
    if narrow is not Precision.BF16:
        summary, change = f"{SUMMARY}, with loss scaling", IN_FLOAT16.format(scaler=scaler)
    return Fix(
        summary,
        change,
        settings={"amp": dtype},
        needs=frozenset({Part.BACKWARD, Part.LOOP}),
        otherwise=Fix(
            "Run the model in mixed precision",
            IN_FORWARD.format(dtype=dtype),
            settings={"amp": dtype},
            needs=frozenset({Part.MODEL}),
            otherwise=Fix(f"Load the weights in {dtype}: a setting of the serving engine"),
        ),
    )


def _together(facts: Facts, fix: Fix) -> float | None:
    """Return the expected speed-up of all these kernels together; None if it is unknown."""
    if not isinstance(fix.what_if, FasterKernels):
        return None
    durations_ns = facts.trace.events.duration_ns[fix.what_if.rows].astype(np.float64)
    return float(durations_ns.sum() / max((durations_ns / fix.what_if.expected).sum(), 1.0))


def _tf32(work: DeviceWork, float32: Mask) -> tuple[str, ...]:
    """Return a caveat if float32 kernels run, or may run, as TF32."""
    kernels = work.by_kernel
    if kernels.is_run_in(Precision.FP32)[float32].all():
        return ()
    if kernels.is_run_in(Precision.TF32)[float32].any():
        return ("Some of these kernels already use TF32. The saving accounts for this.",)
    return ("Convolutions may already use TF32 on this GPU. The speed-up is then at most about 2.",)
