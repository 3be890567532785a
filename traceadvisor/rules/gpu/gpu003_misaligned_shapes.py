from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from traceadvisor.analysis.arithmetic.roofline import REACH, Case
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.arrays import Mask
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit

MOST_SPARED = 0.5
"""Largest share of a matmul's time that aligned sizes are assumed to save. Current libraries use tensor cores for all
sizes, but most efficiently for multiples of 16 bytes. Source: NVIDIA, Matrix Multiplication Background User's Guide,
section 2.2."""


@dataclass(frozen=True, slots=True)
class MisalignedShapes(Rule):
    """Sizes of 16-bit matmuls are not multiples of 8.

    What it finds: Matmuls in float16 or bfloat16 with a size that is not a multiple of 8. A size is the number of rows,
        the number of columns or the inner size. Matmuls with a size below 8 are left out, because they do not benefit
        from tensor cores.
    Why it costs time: Tensor cores process 16-bit matrices in tiles of 8 or more elements. They read memory in units of
        16 bytes. Other sizes need kernels that load smaller pieces.
    How to fix it: Round layer sizes, vocabulary size and padded lengths up to multiples of 8, ideally 64. For example,
        increase a vocabulary of 50,257 entries to 50,304.
    How the saving is estimated: Upper limit: half of the time of these matmuls, or less if they already run close to
        the GPU's limit. The cost of the larger sizes is a few percent at most and is not counted.
    When it may be wrong: Newer libraries pad some sizes themselves and lose less time.
    """

    meta = RuleMeta("GPU003", "misaligned-shapes", "Sizes of 16-bit matmuls are not multiples of 8")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.SHAPES})

    min_share: float = 0.03
    """Share of the step in such matmuls. Below it, last layers with an odd number of classes would be reported."""

    multiple: Annotated[int, Meta(gt=0, lt=2**62)] = 8
    """Sizes should be multiples of this number: 16 bytes of 16-bit values."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of matmuls with misaligned sizes with the step."""
        work, device_ns = facts.device_work, facts.device_work.calls.device_ns
        calls, sizes = work.calls, work.calls.sizes
        narrow = calls.is_kind(Kind.MATMUL) & calls.is_precision(Precision.FP16, Precision.BF16) & work.is_kept
        products = narrow & (sizes >= self.multiple).all(axis=1)
        odd = products & (sizes % self.multiple != 0).any(axis=1)
        claims = facts.exposed(work.kernels_of(odd), Category.KERNEL)
        share = facts.share(claims)
        if share < self.min_share:
            remark = None if narrow.any() else "no matmul ran in 16 bits"
            return Clear("time in 16-bit matmuls with misaligned sizes", share, self.min_share, Unit.SHARE, remark)
        worst = self._by_time(facts, odd)
        of_narrow = float(device_ns[odd].sum() / max(device_ns[narrow].sum(), 1))
        return facts.finding(
            claims=claims,
            fix=Fix(
                f"Round these sizes up to multiples of {self.multiple}, ideally 64",
                change="; ".join(f"{size} -> {-(-size // self.multiple) * self.multiple}" for size in worst),
                not_replayed="the kernels that the library would choose for other sizes are unknown",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("time in 16-bit matmuls with misaligned sizes", claims),
                Evidence("share of 16-bit matmul time", of_narrow, Unit.SHARE),
                *(Evidence("misaligned size (most time first)", size, Unit.COUNT) for size in worst),
            ),
            most_ns=_most_ns(facts, odd),
            caveats=("Keep the added entries unused: larger sizes change the model.",),
        )

    def _by_time(self, facts: Facts, odd: Mask) -> list[int]:
        """Return up to three misaligned sizes, the most expensive first."""
        calls = facts.device_work.calls
        spent: dict[int, int] = {}
        for sizes, duration_ns in zip(calls.sizes[odd].tolist(), calls.device_ns[odd].tolist(), strict=True):
            for size in {size for size in sizes if size % self.multiple}:
                spent[size] = spent.get(size, 0) + duration_ns
        return sorted(spent, key=lambda size: -spent[size])[:3]


def _most_ns(facts: Facts, odd: Mask) -> float:
    work = facts.device_work
    duration_ns = work.calls.device_ns[odd].astype(np.float64)
    spared_ns = duration_ns * MOST_SPARED
    if work.limits is not None:
        best_ns = work.limits.least_ns[odd] / REACH[Kind.MATMUL][Case.HIGH]
        spared_ns = np.fmin(spared_ns, np.maximum(duration_ns - best_ns, 0.0))
    return float(spared_ns.sum()) / facts.step_count
