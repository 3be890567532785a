"""What a device did in the kept steps, against what it could do.

Kernels that multiply no matrices: pointwise work, normalisation, reductions, copies made by kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.arithmetic.flops import FORMULAS
from traceadvisor.analysis.arithmetic.matrix_work import KINDS, PRECISIONS, MatrixWork, matrix_work
from traceadvisor.analysis.arithmetic.roofline import Limits, Speedups, in_type, limits
from traceadvisor.analysis.arithmetic.work import Kind as WorkKind
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.hardware.devices import DeviceRow, Precision, device_row
from traceadvisor.hardware.tensor_cores import has_tf32
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.run import RunSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Device, Trace

LEAST_ACCOUNTED_SHARE = 0.9
"""Share of kernel time whose operations must be known for a rate to be told; with less it may be higher than it
looks."""


@dataclass(frozen=True, slots=True)
class AchievedRate:
    """Operations of matrix products, convolutions and attention; those of everything else are too few to count.

    They count as torch counts them, a causal mask not deducted.
    """

    flops_per_s: float
    """Over the kept windows, idle time included."""

    peak_share: float
    """Of what the device could do in the types that the work was done in: model FLOPs utilisation, where nothing is
    computed twice (https://arxiv.org/abs/2204.02311, appendix B)."""

    own_peak_share: float
    """The same over the time in which those calls' own kernels ran."""

    accounted_share: float
    """Share of kernel time that is known to do just these operations, or none."""

    @property
    def is_whole(self) -> bool:
        """Whether hardly any operation is missing from it."""
        return self.accounted_share >= LEAST_ACCOUNTED_SHARE


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """The calls that multiply matrices, and the rest, on one device."""

    trace: Trace
    launches: Launches
    tree: OperatorTree
    windows: SpanSet
    """The kept steps."""

    device: Device | None
    settings: RunSettings

    @cached_property
    def row(self) -> DeviceRow | None:
        """What the device's maker publishes of it; None where that was not read."""
        return device_row(self.device) if self.device else None

    @cached_property
    def calls(self) -> MatrixWork:
        """Every call of an operator that multiplies matrices."""
        return matrix_work(self.trace, self.launches, self.tree)

    @cached_property
    def precision(self) -> NDArray[np.int8]:
        """The number type in which each call multiplied: a position in ``PRECISIONS``, NONE where not known."""
        return run_precision(self.trace, self.calls, self.device, self.settings)

    def is_run_in(self, precision: Precision) -> Mask:
        """For each call, whether it multiplied in a type; not where that is not known."""
        run_in: Mask = self.precision == PRECISIONS.index(precision)
        return run_in

    @cached_property
    def limits(self) -> Limits | None:
        """Each call's least time on this device; None where its rates are not known."""
        return limits(self.calls, self.row, self.precision) if self.row else None

    @cached_property
    def is_kept(self) -> Mask:
        """Whether a call's kernels run in the kept steps."""
        kept = np.zeros(self.calls.kind.size, np.bool_)
        kept[self.calls.kernel_call[self._starts_inside(self.calls.kernel_rows)]] = True
        return kept

    @cached_property
    def kernels(self) -> Int64:
        """Rows of all kernels of the kept steps."""
        kinds = self.trace.events.kind[self.launches.work_rows]
        rows: Int64 = self.launches.work_rows[kinds == Kind.KERNEL]
        inside: Int64 = rows[self._starts_inside(rows)]
        return inside

    @cached_property
    def plain_kernels(self) -> Int64:
        """Rows of those that are known to multiply no matrices."""
        rows = plain_kernels(self.trace, self.launches, self.tree, self.calls.kernel_rows)
        return rows[self._starts_inside(rows)]

    @cached_property
    def peak_ns(self) -> Float64:
        """The time of each call's operations at the peak rate; not a number where not known."""
        found = [self.row.flops_per_s(each) if self.row else None for each in PRECISIONS]
        rates: Float64 = np.array([rate or np.nan for rate in (*found, None)])[self.precision]
        return self.calls.flops / rates * 1e9

    @cached_property
    def rate(self) -> AchievedRate | None:
        """What was achieved in the kept steps; None where it cannot be told of any call."""
        known = self.is_kept & np.isfinite(self.peak_ns)
        if not known.any():
            return None
        peak_ns, own_ns = float(self.peak_ns[known].sum()), self.calls.device_ns[known].sum()
        accounted = self.time_ns(self.kernels_of(known)) + self.time_ns(self.plain_kernels)
        return AchievedRate(
            flops_per_s=float(self.calls.flops[known].sum()) / self.windows.total_ns * 1e9,
            peak_share=peak_ns / self.windows.total_ns,
            own_peak_share=peak_ns / max(int(own_ns), 1),
            accounted_share=accounted / max(self.time_ns(self.kernels), 1),
        )

    def kernels_of(self, calls: Mask) -> Int64:
        """Rows of the kernels of some calls, ascending, those of the kept steps."""
        rows = self.calls.kernel_rows[calls[self.calls.kernel_call]]
        return np.sort(rows[self._starts_inside(rows)])

    def time_ns(self, rows: Int64) -> int:
        """Summed durations."""
        return int(self.trace.events.duration_ns[rows].sum())

    def in_type(self, target: Precision, calls: Mask) -> Speedups | None:
        """What running some calls in another type would do to their kernels; None where no rate of it is known."""
        if self.row is None or self.row.flops_per_s(target) is None or self.row.bytes_per_s is None:
            return None
        return in_type(self.calls, self.row, self.precision, target, calls)

    def _starts_inside(self, rows: Int64) -> Mask:
        return self.windows.contains(self.trace.events.start_ns[rows])


_MAY_MULTIPLY = re.compile(r"mm|mv|conv|att|rnn")
_IS_PLAIN = re.compile(r"^(aten::|triton_(poi|red|per|for)_)")
"""Operators of torch, and kernels that its compiler makes of pointwise work and reductions: their names are given in
``torch/_inductor/codegen/triton.py``."""


def plain_kernels(trace: Trace, launches: Launches, tree: OperatorTree, multiplying: Int64) -> Int64:
    """Rows, ascending, of kernels that are known to multiply nothing, for what launched them.

    What a CUDA graph replays, and what operators of other libraries do, is not known.

    Args:
        trace: the recording.
        launches: of one device.
        tree: of its operators.
        multiplying: rows of the kernels of matrix products, convolutions and attention.
    """
    events = trace.events
    others = (events.kind[launches.work_rows] == Kind.KERNEL) & (launches.call_rows != NONE)
    others &= ~np.isin(launches.work_rows, multiplying)
    rows, calls = launches.work_rows[others], launches.call_rows[others]
    named = events.name_id[tree.rows]
    plain = name_mask(trace.names, lambda name: bool(_IS_PLAIN.search(name)) and not _MAY_MULTIPLY.search(name))
    within = tree.nearest(name_mask(trace.names, lambda name: name in FORMULAS)[named]) != NONE
    owner = tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    return np.sort(rows[np.append(plain[named] | within, False)[owner]])  # a value, not a flag


_IN_TF32 = re.compile(r"tf32|tensorop_s1688")
_IN_FLOAT32 = re.compile(r"simt|ffma|sgemm|scudnn")
"""What cuBLAS, cuDNN and CUTLASS write into the names of kernels; of names with both, the former counts: CUTLASS calls
its TF32 products ``tensorop_s1688gemm``. https://docs.nvidia.com/cutlass, "Functionality"."""

_FLOAT32, _TF32 = PRECISIONS.index(Precision.FP32), PRECISIONS.index(Precision.TF32)


def run_precision(trace: Trace, work: MatrixWork, device: Device | None, settings: RunSettings) -> NDArray[np.int8]:
    """For each call a position in ``PRECISIONS``; NONE where not known, above all of float32 that may have been TF32.

    The device comes first, for AMD's and older ones use no TF32, whatever is allowed (for convolutions torch allows it
    by default); then a kernel's name, where it tells anything; then the settings.
    """
    precision = work.precision.copy()
    is_float32 = precision == _FLOAT32
    is_known = device is not None and (device.name is not None or device.compute_capability is not None)
    if is_known and not has_tf32(device):
        return precision
    precision[is_float32] = _by_settings(settings)[work.kind[is_float32]]
    named = _by_names(trace, work)
    known = is_float32 & (named != NONE)
    precision[known] = named[known]
    return precision


def _by_settings(settings: RunSettings) -> NDArray[np.int8]:
    """What becomes of float32, by kind of work."""
    allowed = {
        WorkKind.MATMUL: settings.matmul_tf32,
        WorkKind.CONVOLUTION: settings.cudnn_tf32,
        WorkKind.RECURRENT: settings.cudnn_tf32,
        WorkKind.ATTENTION: None,
    }
    codes = {None: NONE, False: _FLOAT32, True: _TF32}
    return np.array([codes[allowed[kind]] for kind in KINDS], np.int8)


def _by_names(trace: Trace, work: MatrixWork) -> NDArray[np.int8]:
    """What the names of a call's kernels say of it."""
    names = trace.events.name_id[work.kernel_rows]
    found = np.full(work.kind.size, NONE, np.int8)
    for pattern, code in ((_IN_FLOAT32, _FLOAT32), (_IN_TF32, _TF32)):
        says = name_mask(trace.names, _says(pattern))
        found[work.kernel_call[says[names]]] = code
    return found


def _says(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda name: pattern.search(name) is not None
