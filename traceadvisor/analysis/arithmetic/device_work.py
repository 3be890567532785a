"""What a device did in the kept steps, compared with its peak rates.

Also finds the number type in which matrices were multiplied, and kernels that multiply none: pointwise work,
normalisation, reductions, copies made by kernels.
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
"""Share of kernel time whose operations must be known before a rate is reported; below it the true rate may be
higher."""


@dataclass(frozen=True, slots=True)
class AchievedRate:
    """Rate of matrix products, convolutions and attention; other operations are too few to count.

    Operations count as in torch: a causal mask is not deducted.
    """

    flops_per_s: float
    """Over the kept windows, including idle time."""

    peak_share: float
    """Share of the device's peak in the types used: model FLOPs utilisation, if nothing is
    recomputed (https://arxiv.org/abs/2204.02311, appendix B)."""

    own_peak_share: float
    """The same over the run time of those calls' kernels only."""

    accounted_share: float
    """Share of kernel time that is known to do exactly these operations, or none."""

    @property
    def is_whole(self) -> bool:
        """Whether almost all operations are counted."""
        return self.accounted_share >= LEAST_ACCOUNTED_SHARE


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """Matrix multiplications and other work on one device."""

    trace: Trace
    launches: Launches
    tree: OperatorTree
    windows: SpanSet
    """The kept steps."""

    device: Device | None
    settings: RunSettings

    @cached_property
    def row(self) -> DeviceRow | None:
        """The vendor's published figures of the device; None if not in the table."""
        return device_row(self.device) if self.device else None

    @cached_property
    def calls(self) -> MatrixWork:
        """Every call of an operator that multiplies matrices."""
        return matrix_work(self.trace, self.launches, self.tree)

    @cached_property
    def precision(self) -> NDArray[np.int8]:
        """The number type in which each call multiplied: a position in ``PRECISIONS``, NONE if unknown."""
        return run_precision(self.trace, self.calls, self.device, self.settings)

    def is_run_in(self, precision: Precision) -> Mask:
        """For each call, whether it multiplied in a type; False if unknown."""
        run_in: Mask = self.precision == PRECISIONS.index(precision)
        return run_in

    @cached_property
    def limits(self) -> Limits | None:
        """Each call's minimum time on this device; None if its rates are unknown."""
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
        """Rows of kernels that are known to multiply no matrices."""
        rows = plain_kernels(self.trace, self.launches, self.tree, self.calls.kernel_rows)
        return rows[self._starts_inside(rows)]

    @cached_property
    def peak_ns(self) -> Float64:
        """The time of each call's operations at the peak rate; NaN if unknown."""
        found = [self.row.flops_per_s(each) if self.row else None for each in PRECISIONS]
        rates: Float64 = np.array([rate or np.nan for rate in (*found, None)])[self.precision]
        return self.calls.flops / rates * 1e9

    @cached_property
    def rate(self) -> AchievedRate | None:
        """The rate achieved in the kept steps; None if unknown for every call."""
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
        """Return the rows of some calls' kernels in the kept steps, ascending."""
        rows = self.calls.kernel_rows[calls[self.calls.kernel_call]]
        return np.sort(rows[self._starts_inside(rows)])

    def time_ns(self, rows: Int64) -> int:
        """Return the summed durations of some rows."""
        return int(self.trace.events.duration_ns[rows].sum())

    def in_type(self, target: Precision, calls: Mask) -> Speedups | None:
        """Return the speed-ups of running some calls in another type; None if its rate is unknown."""
        if self.row is None or self.row.flops_per_s(target) is None or self.row.bytes_per_s is None:
            return None
        return in_type(self.calls, self.row, self.precision, target, calls)

    def _starts_inside(self, rows: Int64) -> Mask:
        return self.windows.contains(self.trace.events.start_ns[rows])


_MAY_MULTIPLY = re.compile(r"mm|mv|conv|att|rnn")
_IS_PLAIN = re.compile(r"^(aten::|triton_(poi|red|per|for)_)")
"""Torch operators, and kernels that its compiler generates for pointwise work and reductions (named in
``torch/_inductor/codegen/triton.py``)."""


def plain_kernels(trace: Trace, launches: Launches, tree: OperatorTree, multiplying: Int64) -> Int64:
    """Return rows, ascending, of kernels that multiply nothing, judging by the operator that launched them.

    Kernels of CUDA graphs and of other libraries' operators are unknown.

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
"""Marks in kernel names of cuBLAS, cuDNN and CUTLASS; if a name has both, the former counts: CUTLASS calls its TF32
products ``tensorop_s1688gemm``. https://docs.nvidia.com/cutlass, "Functionality"."""

_FLOAT32, _TF32 = PRECISIONS.index(Precision.FP32), PRECISIONS.index(Precision.TF32)


def run_precision(trace: Trace, work: MatrixWork, device: Device | None, settings: RunSettings) -> NDArray[np.int8]:
    """Return each call's position in ``PRECISIONS``; NONE if unknown, for example float32 that may have been TF32.

    The device decides first: AMD's and older ones have no TF32, whatever the settings (torch allows it for convolutions
    by default). Next come marks in kernel names, then the settings.
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
    """Return the type that float32 is multiplied in, by kind of work."""
    allowed = {
        WorkKind.MATMUL: settings.matmul_tf32,
        WorkKind.CONVOLUTION: settings.cudnn_tf32,
        WorkKind.RECURRENT: settings.cudnn_tf32,
        WorkKind.ATTENTION: None,
    }
    codes = {None: NONE, False: _FLOAT32, True: _TF32}
    return np.array([codes[allowed[kind]] for kind in KINDS], np.int8)


def _by_names(trace: Trace, work: MatrixWork) -> NDArray[np.int8]:
    """Return the type that the names of a call's kernels show."""
    names = trace.events.name_id[work.kernel_rows]
    found = np.full(work.kind.size, NONE, np.int8)
    for pattern, code in ((_IN_FLOAT32, _FLOAT32), (_IN_TF32, _TF32)):
        says = name_mask(trace.names, _says(pattern))
        found[work.kernel_call[says[names]]] = code
    return found


def _says(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda name: pattern.search(name) is not None
