"""How long each kernel takes on another GPU, relative to the recorded one, from published rates of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.analysis.arithmetic.kernel_work import PLAIN, KernelWork
from traceadvisor.analysis.arithmetic.matrix_work import KINDS, PRECISIONS, MatrixWork
from traceadvisor.analysis.arithmetic.roofline import REACH, Case, limits
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.hardware.devices import DeviceRow, Precision
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.whatif import Basis

MEMORY_SPREAD = 1.25
"""Factor by which the shares of their bandwidth that two GPUs reach differ at most, an assumption. A T4 reaches 0.69
and a V100 0.83 of the published figure (Jia et al., https://arxiv.org/abs/1903.07486)."""

LEAST_REACH = 0.1
"""Share of its limit below which something else than the published rates limits a kernel, such as too few blocks."""

SHARED_RATIO = 2.1
"""Largest ratio of the rates of TF32 and float32, 1 or 2 but for rounding, of GPUs that count cores for integers as
float32 (GA102, AD102)."""

SHARED_CORES = {Case.LOW: 1.65, Case.EXPECTED: 1.28, Case.HIGH: 1.0}
"""How much longer such GPUs take than others at the published rate of float32.

Training steps of VGG-16 with batch 12 (1.11e12 operations) reach 0.61 of it on an RTX 3090 (51.5 ms) and 1.03 on a
TITAN V (72.9 ms; github.com/ryujaehun/pytorch-gpu-benchmark); the middle lies between that and none.
"""

PLAIN_REACH = {Kind.MATMUL: 0.9, Kind.CONVOLUTION: 0.74, Kind.ATTENTION: 0.74, Kind.RECURRENT: 0.74}
"""Share of its limit that a call reaches on ordinary cores.

Convolutions: ResNet-50 on a V100, by time (the log of pytorch/kineto's plugin). Products: 1 for 10,240 rows on an A100
(docs.pytorch.org, notes on CUDA: 0.11 s), less for smaller ones. The others by judgement.
"""

_EVER = SpanSet.of((0, 1 << 62))


@frozen(eq=False)
class Factors:
    """Time of each kernel on another GPU over that on the recorded one; arrays of shape ``(k,)``."""

    rows: Int64
    """Rows of the event table, ascending."""

    low: Float64
    expected: Float64
    high: Float64
    basis: Sequence[Basis]
    missing: frozenset[Precision]
    """Number types of the recording without a rate on one of the GPUs: no factor is right."""


def factors(facts: Facts, recorded: DeviceRow, other: DeviceRow) -> Factors:
    """Return the factors of all kernels of a recording.

    Kernels of operators with known shapes keep their share of the limit that arithmetic or memory sets; others follow
    the rate of their number type or memory bandwidth. A GPU that is at least as fast in every respect makes no kernel
    slower.
    """
    whole = replace(facts.device_work, windows=_EVER)
    kernels = whole.by_kernel
    types = _types(facts, kernels, recorded, other)
    ratios = _Ratios(
        recorded,
        other,
        frozenset(PRECISIONS[code] for code in np.unique(np.concatenate(types)).tolist() if code != NONE),
    )
    low, expected, high = np.ones((3, kernels.rows.size))
    basis = np.full(kernels.rows.size, Basis.UNKNOWN_KERNELS)
    for chosen, found, kind in _by_group(whole, kernels, types, ratios):
        low[chosen], expected[chosen], high[chosen] = found
        basis[chosen] = kind
    low, expected, high = ratios.within(low), ratios.within(expected), ratios.within(high)
    order = np.argsort(kernels.rows)
    missing = {PRECISIONS[code] for code in np.unique(types[0]).tolist() if code != NONE} - set(recorded.tflops)
    missing |= {PRECISIONS[code] for code in np.unique(types[1]).tolist() if code != NONE} - set(other.tflops)
    return Factors(
        kernels.rows[order], low[order], expected[order], high[order], basis[order].tolist(), frozenset(missing)
    )


@frozen(eq=False)
class _Ratios:
    """Rates of the recorded GPU over those of the other."""

    recorded: DeviceRow
    other: DeviceRow
    used: frozenset[Precision]
    """Number types of kernels whose type is known."""

    @property
    def memory(self) -> float:
        return self.recorded.bytes_per_s / self.other.bytes_per_s

    @property
    def arithmetic(self) -> Mapping[Precision, float]:
        shared = self.recorded.tflops.keys() & self.other.tflops.keys()
        return {one: self.recorded.tflops[one] / self.other.tflops[one] for one in shared}

    @property
    def all(self) -> list[float]:
        return [self.memory, *self.arithmetic.values()]

    @property
    def likely(self) -> list[float]:
        """Those that a kernel of unknown work may depend on: of types that others use, and of float32."""
        used = {*self.used, Precision.FP32}
        return [self.memory, *(ratio for one, ratio in self.arithmetic.items() if one in used)]

    def within(self, factors: Float64) -> Float64:
        """Limit factors to at most 1 for a GPU as fast in every respect, and to at least 1 for one as slow."""
        return np.clip(factors, 1.0 if min(self.all) >= 1 else 0.0, 1.0 if max(self.all) <= 1 else np.inf)


_Ends = tuple[Float64, Float64, Float64]
_Found = tuple[Float64 | float, Float64 | float, Float64 | float]


def _by_group(
    work: DeviceWork, kernels: KernelWork, types: tuple[Int64, Int64], ratios: _Ratios
) -> Iterable[tuple[Mask, _Found, Basis]]:
    """Yield kernels with their factors: plain ones, those known by name, and those of calls with known shapes."""
    memory, single = ratios.memory, ratios.arithmetic.get(Precision.FP32, ratios.memory)
    between = (memory * single) ** 0.5  # what the cache or arithmetic limits in part
    yield (
        kernels.kind == NONE,
        (min(ratios.likely) / MEMORY_SPREAD, memory, max(ratios.likely) * MEMORY_SPREAD),
        (Basis.UNKNOWN_KERNELS),
    )
    ends = min(memory, between) / MEMORY_SPREAD, memory, max(memory, between) * MEMORY_SPREAD
    yield kernels.kind == PLAIN, ends, Basis.BANDWIDTH
    by_type = _rates(ratios.recorded)[types[0]] / _rates(ratios.other)[types[1]]
    untyped = kernels.is_matrix & (types[0] == NONE)
    yield (
        untyped,
        (min(ratios.likely) / MEMORY_SPREAD, _median(ratios.likely), max(ratios.likely) * MEMORY_SPREAD),
        (Basis.UNKNOWN_KERNELS),
    )
    for kind in KINDS:
        mine = kernels.is_kind(kind) & (types[0] != NONE)
        less, more = _spread(kind)
        rate = by_type[mine]
        kept = np.minimum(rate, memory) * less, rate, np.maximum(rate, memory) * more
        units = _Units(types[0][mine], types[1][mine], ratios)
        yield mine, units.changed(kind, kept, PLAIN_REACH[kind], single), Basis.NAMED
    yield from _by_shapes(work, kernels, types, ratios)


def _by_shapes(
    work: DeviceWork, kernels: KernelWork, types: tuple[Int64, Int64], ratios: _Ratios
) -> Iterable[tuple[Mask, _Found, Basis]]:
    calls = work.calls
    if not calls.kind.size:
        return
    has_call = kernels.call != NONE
    type_before, type_after = (np.full(calls.kind.size, NONE, np.int8) for _ in range(2))
    type_before[kernels.call[has_call]] = types[0][has_call]
    type_after[kernels.call[has_call]] = types[1][has_call]
    before_ns = limits(calls, ratios.recorded, type_before).least_ns
    ratio = limits(calls, ratios.other, type_after).least_ns / before_ns
    plain = _least_ns(calls, ratios.other) / _least_ns(calls, ratios.recorded)
    reach = before_ns / np.maximum(calls.device_ns, 1)
    for kind in KINDS:
        mine = kernels.is_kind(kind) & has_call
        mine[mine] = np.isfinite(ratio[kernels.call[mine]])
        of_call, share = ratio[kernels.call[mine]], reach[kernels.call[mine]]
        less, more = _spread(kind)
        unused = share < LEAST_REACH
        low = np.where(unused, np.minimum(of_call * less, 1), of_call * less)
        high = np.where(unused, np.maximum(of_call * more, 1), of_call * more)
        kept = low, np.where(unused, of_call**0.5, of_call), high
        units = _Units(types[0][mine], types[1][mine], ratios)
        yield mine, units.changed(kind, kept, share, plain[kernels.call[mine]]), Basis.ARITHMETIC


@frozen(eq=False)
class _Units:
    """Kernels that multiply float32 on ordinary cores, or in TF32 on matrix units, of either GPU."""

    before: Int64
    after: Int64
    ratios: _Ratios

    def changed(self, kind: Kind, kept: _Found, share: Float64 | float, plain: Float64 | float) -> _Ends:
        """Return the factors by what calls reach on other units.

        A call comes as close to the limit of matrix units as on ordinary cores, but not closer than calls of its kind
        do. Where ordinary cores would be faster, libraries take those.

        Args:
            kind: of the calls.
            kept: their factors at an equal share of the limit, from the shortest.
            share: of their limit that they reach on ordinary cores of the recorded GPU.
            plain: their factors from ordinary cores to ordinary cores.
        """
        to_matrix = (self.before == _FLOAT32) & (self.after == _TF32)
        to_plain = (self.before == _TF32) & (self.after == _FLOAT32)
        stays_plain = (self.before == _FLOAT32) & (self.after == _FLOAT32)
        stays_plain &= _is_shared(self.ratios.recorded) != _is_shared(self.ratios.other)
        likely = np.asarray(kept[1])
        less, more = _spread(kind)
        found = []
        for one, case, other, spread in zip(kept, reversed(Case), Case, (less, 1.0, more), strict=True):
            there, here = _shared(self.ratios.other, case), _shared(self.ratios.recorded, other)
            cores = plain * there
            longer = np.maximum(one, np.minimum(likely * share / REACH[kind][case], cores * min(spread, 1.0)))
            cores = plain / here
            shorter = np.minimum(one, np.maximum(likely * REACH[kind][other] / PLAIN_REACH[kind], cores))
            kept_units = np.where(stays_plain, one * there / here, one)
            found.append(np.where(to_matrix, longer, np.where(to_plain, shorter, kept_units)))
        low, expected, high = found
        return low, expected, high


def _is_shared(row: DeviceRow) -> bool:
    return row.tflops.get(Precision.TF32, np.inf) <= SHARED_RATIO * row.tflops.get(Precision.FP32, 0.0)


def _shared(row: DeviceRow, case: Case) -> float:
    return SHARED_CORES[case] if _is_shared(row) else 1.0


def _least_ns(calls: MatrixWork, row: DeviceRow) -> Float64:
    return limits(calls, row, np.full(calls.kind.size, _FLOAT32, np.int8)).least_ns


def _spread(kind: Kind) -> tuple[float, float]:
    """How much shorter or longer a kernel may take, because it comes closer to its limit on one GPU than on another."""
    reach = REACH[kind]
    return reach[Case.EXPECTED] / reach[Case.HIGH], reach[Case.EXPECTED] / reach[Case.LOW]


def _rates(row: DeviceRow) -> Float64:
    """Rates by position in ``PRECISIONS``; NaN if unknown, also behind the last."""
    return np.array([row.tflops.get(one, np.nan) for one in PRECISIONS] + [np.nan])


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


_FLOAT32, _TF32 = PRECISIONS.index(Precision.FP32), PRECISIONS.index(Precision.TF32)


def _types(facts: Facts, kernels: KernelWork, recorded: DeviceRow, other: DeviceRow) -> tuple[Int64, Int64]:
    """Return the type of each matrix kernel on both GPUs, as positions in ``PRECISIONS``; NONE if unknown.

    Without TF32, float32 takes its place. With it, convolutions and recurrent layers of float32 use it, as torch does
    by default; other products do if the program allows it. 16-bit types off the matrix units run at the rate of
    float32.
    """
    before = np.where(kernels.is_matrix, kernels.precision, NONE).astype(np.int64)
    before[kernels.is_matrix & (before == NONE) & (kernels.stored == _FLOAT32)] = _FLOAT32
    narrow = kernels.off_tensor_cores & kernels.is_stored_in(Precision.FP16, Precision.BF16)
    before[narrow] = _FLOAT32
    after = before.copy()
    if Precision.TF32 not in recorded.tflops:
        before[before == _TF32] = after[after == _TF32] = _FLOAT32
    if Precision.TF32 not in other.tflops:
        after[after == _TF32] = _FLOAT32
    elif Precision.TF32 not in recorded.tflops:
        settings = facts.settings
        by_cudnn = kernels.is_kind(Kind.CONVOLUTION, Kind.RECURRENT) & (settings.cudnn_tf32 is not False)
        by_product = kernels.is_kind(Kind.MATMUL) & bool(settings.matmul_tf32)
        after[(after == _FLOAT32) & (kernels.stored == _FLOAT32) & (by_cudnn | by_product)] = _TF32
    return before, after
