from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from traceadvisor.analysis.arithmetic.misalignment import Alignment
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

MOST_SIZES = 3


@frozen
class MisalignedShapes(Rule):
    """Rows of matrices are not multiples of 16 bytes.

    What it finds: Matmuls on tensor cores with a misaligned matrix: the size along which its elements are contiguous is
        not a multiple of 8 in 16 bits (16 in 8 bits, 4 in TF32), by the kernel's name, else by shapes and strides. The
        number of samples or tokens does not matter: in a linear layer, no matrix is contiguous along it. Matmuls with a
        size below 8 are left out.
    Why it costs time: Tensor cores process tiles of 8 or more 16-bit elements and read memory in units of 16 bytes.
        Other sizes need kernels that load smaller pieces.
    How to fix it: Round layer sizes and vocabulary size up to multiples of 8, ideally 64. For example, increase a
        vocabulary of 50,257 entries to 50,304.
    How the saving is estimated: Upper limit: half of the time of these matmuls, or less if they run close to the GPU's
        limit. The larger sizes cost a few percent at most, which is not counted.
    When it may be wrong: Newer libraries pad some sizes themselves and lose less time. Without recorded strides, only
        sizes that are certainly contiguous count.
    """

    meta = RuleMeta("GPU003", "misaligned-shapes", "Matrices of matmuls are not aligned to 16 bytes")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    of_cuda = True
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.03
    """Share of the step in such matmuls. Below it, last layers with an odd number of classes would be reported."""

    multiple: Annotated[int, Meta(gt=0, lt=2**62)] = 8
    """Sizes in 16 bits should be multiples of this number: 16 bytes. Narrower types need more, wider ones fewer."""

    def check(self, facts: Facts) -> Outcome:
        found = Alignment(facts.device_work, self.multiple)
        rows = facts.device_work.kernels_where(found.is_misaligned)
        claims = facts.exposed(rows, Category.KERNEL)
        share, judged = facts.share(claims), facts.device_work.judged_share(found.is_judged)
        if share < self.min_share:
            remark = None if found.is_product.any() else "no matmul ran on tensor cores"
            label = "time in matmuls with misaligned matrices"
            return Clear(label, share, self.min_share, Unit.SHARE, remark, judged_share=judged)
        work = facts.device_work
        sizes = list(found.sizes_by_time())[:MOST_SIZES]
        of_products = work.time_ns(rows) / max(work.time_ns(work.kernels_where(found.is_product)), 1)
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                f"Round these sizes up to multiples of {self.multiple}, ideally 64",
                change="\n".join(f"size = {rounded}  # instead of {size}" for size, rounded in sizes) or None,
                not_replayed="the kernels that the library would choose for other sizes are unknown",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("time in matmuls with misaligned matrices", claims),
                Evidence("share of matmul time on tensor cores", of_products, Unit.SHARE),
                *(Evidence("misaligned size (most time first)", size, Unit.COUNT) for size, _ in sizes),
                facts.known("smallest alignment in a kernel name, in elements", found.least_alignment, Unit.COUNT),
            ),
            most_ns=found.most_ns / facts.step_count,
            locations=facts.locations(work.calls.rows[found.misaligned_calls][:1]),
            caveats=("Keep the added entries unused: larger sizes change the model.",),
        )
