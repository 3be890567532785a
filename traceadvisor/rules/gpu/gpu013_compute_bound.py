from __future__ import annotations

from traceadvisor.hardware.devices import Precision
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

TENSOR_CORE_TYPES = (Precision.TF32, Precision.FP16, Precision.BF16, Precision.FP8, Precision.INT8)

NOT_BOUND = "other fixes can save more than a faster GPU"


@frozen
class ComputeBound(Rule):
    """The GPU is busy with tensor core operations at a good share of their peak rate.

    What it finds: Steps that are almost entirely kernel time, with matrix operations in tensor core types, at a rate
        that large training runs report.
    Why it costs time: It does not: the GPU is used as intended.
    How to fix it: Compute less: a smaller model, shorter sequences, fewer recomputed activations, or narrower types.
        Otherwise, use a faster GPU or more GPUs.
    How the saving is estimated: There is no saving. The evidence shows the maximum saving on a GPU with twice the
        matrix rate.
    When it may be wrong: Recomputed activations count as work.
    """

    meta = RuleMeta("GPU013", "compute-bound", "The GPU computes at a good rate: no cheap fix is left")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    of_cuda = True
    umbrella = True
    claims = frozenset({Category.KERNEL})

    min_utilisation: float = 0.35
    """Share of the peak rate. Large training runs report 0.38 to 0.43 (https://arxiv.org/abs/2407.21783, table 4)."""

    min_busy: float = 0.9
    """Share of the step in kernels. Below it, less waiting is the cheaper fix."""

    min_tensor_cores: float = 0.9
    """Share of the time of matrix operations in tensor core types. Below it, mixed precision can still help."""

    def check(self, facts: Facts) -> Outcome:
        work, busy = facts.device_work, facts.share(facts.claim(Category.KERNEL))
        kernels = work.by_kernel
        if busy < self.min_busy:
            return Clear("GPU busy with kernels", busy, self.min_busy, Unit.SHARE, NOT_BOUND)
        products = work.kernels_where(kernels.is_matrix)
        on_tensor_cores_ns = work.time_ns(work.kernels_where(kernels.is_run_in(*TENSOR_CORE_TYPES)))
        on_tensor_cores = on_tensor_cores_ns / max(work.time_ns(products), 1)
        if on_tensor_cores < self.min_tensor_cores:
            label, judged = "share of matrix time in tensor core types", work.judged_share(kernels.is_typed)
            limit = self.min_tensor_cores
            return Clear(label, on_tensor_cores, limit, Unit.SHARE, NOT_BOUND, judged_share=judged)
        if missing := facts.missing(frozenset({Input.LAUNCHES, Input.SHAPES, Input.PEAK_RATES})):
            return Skipped(missing)
        rate = work.rate
        if rate is None:
            return Skipped("The data type of all matmuls is unknown; float32 may have run as TF32.")
        if rate.peak_share < self.min_utilisation:
            return Clear("share of the peak rate", rate.peak_share, self.min_utilisation, Unit.SHARE, NOT_BOUND)
        half = facts.share(facts.exposed(products, Category.KERNEL)) / 2
        return finding_of(
            facts,
            fix=Fix("Compute less or use a faster GPU: settings can save little more"),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("GPU busy with kernels", busy, Unit.SHARE),
                Evidence("achieved rate of matmuls, convolutions and attention", rate.flops_per_s, Unit.FLOPS_PER_S),
                Evidence("share of the peak rate", rate.peak_share, Unit.SHARE),
                Evidence("maximum saving on a GPU twice as fast", half, Unit.SHARE),
            ),
        )
