from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from msgspec import Meta

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.analysis.arithmetic.matrix_work import PRECISIONS
from traceadvisor.analysis.arithmetic.roofline import REACH, Case
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

MOST_SPARED = 0.5
"""Largest share of a matmul's time that aligned sizes are assumed to save. Current libraries use tensor cores for all
sizes, but most efficiently for multiples of 16 bytes. Source: NVIDIA, Matrix Multiplication Background User's Guide,
section 2.2."""

ON_TENSOR_CORES = (Precision.TF32, Precision.FP16, Precision.BF16, Precision.FP8, Precision.INT8)

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
        found = _Alignment(facts.device_work, self.multiple)
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


@dataclass(frozen=True, eq=False)
class _Alignment:
    """Kernels that multiply misaligned matrices; masks have a value for each of ``work.by_kernel``."""

    work: DeviceWork
    multiple: int

    @cached_property
    def is_product(self) -> Mask:
        """Whether a kernel is a matmul on tensor cores."""
        kernels = self.work.by_kernel
        return kernels.is_kind(Kind.MATMUL) & kernels.is_run_in(*ON_TENSOR_CORES) & ~kernels.off_tensor_cores

    @cached_property
    def _needed(self) -> Int64:
        """The elements that make up 16 bytes, for the type of each kernel; 1 if unknown."""
        per_type = [max(self.multiple * 2 // each.byte_count, 1) for each in PRECISIONS]
        return np.array([*per_type, 1], np.int64)[self.work.by_kernel.stored]

    @cached_property
    def _alignment(self) -> Int64:
        """The alignment that a kernel's name tells, or that of another kernel of its call; NONE if none does."""
        kernels = self.work.by_kernel
        told = (kernels.alignment != NONE) & (kernels.call != NONE)
        by_call = np.full(self.work.calls.kind.size + 1, NONE, np.int64)
        by_call[kernels.call[told]] = kernels.alignment[told]
        return np.where(kernels.call == NONE, kernels.alignment, by_call[kernels.call])

    @cached_property
    def _shapes_known(self) -> Mask:
        """Whether the shapes of a kernel's call are known, and large enough for tensor cores."""
        return self._is_at_least(1)

    @cached_property
    def is_judged(self) -> Mask:
        """Whether a kernel is known to be aligned or misaligned, or to be no matmul on tensor cores."""
        kernels = self.work.by_kernel
        other: Mask = kernels.is_known & (~kernels.is_kind(Kind.MATMUL) | kernels.off_tensor_cores)
        typed = kernels.is_kind(Kind.MATMUL) & (kernels.precision != NONE)
        judged: Mask = other | (typed & ~self.is_product)
        judged |= self.is_product & ((self._alignment != NONE) | self._shapes_known)
        return judged

    @cached_property
    def is_misaligned(self) -> Mask:
        """Whether a kernel multiplies a misaligned matrix."""
        if not self.is_product.any():
            return self.is_product
        is_large = ~self._shapes_known | self._is_at_least(self.multiple)
        by_name: Mask = (self._alignment != NONE) & (self._alignment < self._needed)
        by_shape: Mask = (self._alignment == NONE) & self._has_odd_size
        return self.is_product & is_large & (by_name | by_shape)

    @cached_property
    def _has_odd_size(self) -> Mask:
        kernels = self.work.by_kernel
        nothing = np.zeros((1, self.work.calls.contiguous.shape[1]), np.int64)
        sizes = np.vstack((self.work.calls.contiguous, nothing))[kernels.call]  # the last row, without a call
        odd: Mask = (sizes % self._needed[:, np.newaxis] != 0).any(axis=1)
        return odd

    def _is_at_least(self, size: int) -> Mask:
        """Return whether all sizes of a kernel's call are known and at least this large; False without a call."""
        least = np.append(self.work.calls.sizes.min(axis=1, initial=np.iinfo(np.int64).max), 0)
        large: Mask = least[self.work.by_kernel.call] >= size
        return large

    @cached_property
    def misaligned_calls(self) -> Int64:
        """Positions of the calls of misaligned kernels, ascending."""
        calls = self.work.by_kernel.call[self.is_misaligned]
        return np.unique(calls[calls != NONE])

    @cached_property
    def least_alignment(self) -> int | None:
        """The smallest alignment that a misaligned kernel's name tells; None if none does."""
        told = self._alignment[self.is_misaligned]
        told = told[told != NONE]
        return int(told.min()) if told.size else None

    def sizes_by_time(self) -> Iterator[tuple[int, int]]:
        """Yield misaligned sizes and what to round them up to, the most expensive first."""
        kernels, durations = self.work.by_kernel, self.work.trace.events.duration_ns
        spent: dict[tuple[int, int], int] = {}
        for at in np.flatnonzero(self.is_misaligned & (kernels.call != NONE)).tolist():
            needed = int(self._needed[at])
            for size in {size for size in self.work.calls.contiguous[kernels.call[at]].tolist() if size % needed}:
                key = (size, -(-size // needed) * needed)
                spent[key] = spent.get(key, 0) + int(durations[kernels.rows[at]])
        yield from sorted(spent, key=lambda key: -spent[key])

    @property
    def most_ns(self) -> float:
        """The upper limit of the saving, over all kept steps."""
        kernels = self.work.by_kernel
        durations_ns = self.work.trace.events.duration_ns[kernels.rows].astype(np.float64)
        spared_ns = durations_ns * MOST_SPARED
        if self.work.limits is not None:
            device_ns = np.append(np.maximum(self.work.calls.device_ns, 1), 1)[kernels.call]
            best_ns = np.append(self.work.limits.least_ns, np.nan)[kernels.call] / REACH[Kind.MATMUL][Case.HIGH]
            spared_ns = np.fmin(spared_ns, np.maximum(durations_ns * (1 - best_ns / device_ns), 0.0))
        return float(spared_ns[self.is_misaligned].sum())
