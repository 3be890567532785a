"""Kernels that multiply misaligned matrices, their sizes, and the time that aligned sizes could save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.analysis.arithmetic.matrix_work import PRECISIONS
from traceadvisor.analysis.arithmetic.roofline import REACH, Case
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.hardware.devices import Precision
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE

MOST_SPARED = 0.5
"""Largest share of a matmul's time that aligned sizes are assumed to save. Current libraries use tensor cores for all
sizes, but most efficiently for multiples of 16 bytes. Source: NVIDIA, Matrix Multiplication Background User's Guide,
section 2.2."""

ON_TENSOR_CORES = (Precision.TF32, Precision.FP16, Precision.BF16, Precision.FP8, Precision.INT8)


@dataclass(frozen=True, eq=False)
class Alignment:
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
