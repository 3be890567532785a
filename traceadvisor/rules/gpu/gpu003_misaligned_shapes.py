"""GPU003: 16-bit matrix products whose sizes do not fit the tensor cores."""

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
"""Share of such a product's time that sizes which fit are taken to spare at most. Libraries of today use tensor cores
for all sizes, but most efficiently where sizes are multiples of 16 bytes (NVIDIA, Matrix Multiplication Background
User's Guide, section 2.2)."""


@dataclass(frozen=True, slots=True)
class MisalignedShapes(Rule):
    """Sizes of 16-bit matrix products are no multiples of 8.

    What it finds: Matrix products in float16 or bfloat16 with a number of rows, a number of columns or an inner size
        that 8 does not divide. Products with fewer than 8 in one of them are left out: they are not the tensor cores'
        business.
    Why it costs time: Tensor cores take 16-bit matrices in pieces of 8 and more, and memory in pieces of 16 bytes.
        Other sizes need kernels that load piecemeal.
    How to fix it: Round layer sizes, vocabulary size and padded lengths up to multiples of 8, better of 64: 50,257
        entries of a vocabulary become 50,304.
    How the saving is estimated: As a bound: between nothing and half of these products' time, less where they already
        come close to what the device allows. The larger sizes' own cost is a few per cent at most and left out.
    When it may be wrong: Newer libraries pad some sizes themselves and lose less.
    """

    meta = RuleMeta("GPU003", "misaligned-shapes", "Sizes of 16-bit matrix products are no multiples of 8")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.DTYPES, Input.SHAPES})

    min_share: float = 0.03
    """Share of the step in such products; below it, last layers with an odd number of classes would be found."""

    multiple: Annotated[int, Meta(gt=0, lt=2**62)] = 8
    """What sizes should be multiples of: 16 bytes of 16-bit numbers."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of products with sizes that do not fit with the step."""
        work, device_ns = facts.device_work, facts.device_work.calls.device_ns
        calls, sizes = work.calls, work.calls.sizes
        narrow = calls.is_kind(Kind.MATMUL) & calls.is_precision(Precision.FP16, Precision.BF16) & work.is_kept
        products = narrow & (sizes >= self.multiple).all(axis=1)
        odd = products & (sizes % self.multiple != 0).any(axis=1)
        claims = facts.exposed(work.kernels_of(odd), Category.KERNEL)
        share = facts.share(claims)
        if share < self.min_share:
            remark = None if narrow.any() else "no matrix product is in 16 bits"
            return Clear("16-bit products of odd sizes", share, self.min_share, Unit.SHARE, remark)
        worst = self._by_time(facts, odd)
        of_narrow = float(device_ns[odd].sum() / max(device_ns[narrow].sum(), 1))
        return facts.finding(
            claims=claims,
            fix=Fix(
                f"Round these sizes up to multiples of {self.multiple}, better of 64",
                change="; ".join(f"{size} -> {-(-size // self.multiple) * self.multiple}" for size in worst),
                not_replayed="which kernels the library would choose for other sizes is not known",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("16-bit products of odd sizes", claims),
                Evidence("share of all 16-bit products' time", of_narrow, Unit.SHARE),
                *(Evidence("of the sizes that are no multiples, by time", size, Unit.COUNT) for size in worst),
            ),
            most_ns=_most_ns(facts, odd),
            caveats=("Larger sizes change the model: entries beyond the old size must stay unused.",),
        )

    def _by_time(self, facts: Facts, odd: Mask) -> list[int]:
        """The sizes that do not fit, the most expensive first; three at most."""
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
