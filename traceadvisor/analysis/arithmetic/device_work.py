"""Work of a device in the kept steps, compared with its peak rates.

Also finds the number type in which matrices were multiplied, and kernels that multiply none: pointwise work,
normalisation, reductions, copies made by kernels. What operators record comes first; kernel names tell the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.arithmetic.flops import FORMULAS
from traceadvisor.analysis.arithmetic.kernel_work import (
    PLAIN,
    KernelWork,
    NamedKernels,
    named_kernels,
    run_precision,
    stored_precision,
)
from traceadvisor.analysis.arithmetic.matrix_work import PRECISIONS, MatrixWork, matrix_work
from traceadvisor.analysis.arithmetic.roofline import Limits, Speedups, in_type, limits
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.tree import OperatorTree, call_operators
from traceadvisor.frozen import frozen
from traceadvisor.hardware.devices import DeviceRow, Precision, device_row
from traceadvisor.model.arrays import Float64, Int64, Mask, among, one_of
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.run import RunSettings
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Device, Trace

LEAST_ACCOUNTED_SHARE = 0.9
"""Share of kernel time whose operations must be known before a rate is reported; below it the true rate may be
higher."""


@frozen
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
    def named(self) -> NamedKernels:
        """Properties of this device's kernels by their names."""
        return named_kernels(self.trace, self.launches)

    @cached_property
    def stored(self) -> NDArray[np.int8]:
        """The stored type of each call's factors: a position in ``PRECISIONS``, NONE if unknown."""
        return stored_precision(self.trace, self.calls, self.named)

    @cached_property
    def precision(self) -> NDArray[np.int8]:
        """The number type in which each call multiplied: a position in ``PRECISIONS``, NONE if unknown."""
        return run_precision(self.trace, self.calls, self.stored, self.named, self.device, self.settings)

    def is_stored_in(self, *precisions: Precision) -> Mask:
        """For each call, whether its factors are stored in one of the types; False if unknown."""
        return one_of(self.stored, *map(PRECISIONS.index, precisions))

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
    def by_kernel(self) -> KernelWork:
        """Work of each kernel of the kept steps."""
        plain = plain_kernels(self.trace, self.launches, self.tree, self.calls.kernel_rows)
        return KernelWork.of(self.trace, self.kernels, plain, self.calls, self.stored, self.precision, self.named)

    @cached_property
    def has_operator(self) -> Mask:
        """For each of :attr:`by_kernel`, whether a recorded operator launched it; False for kernels of graphs."""
        rows, calls = self.launches.work_rows, self.launches.call_rows
        events = self.trace.events
        rows, calls = rows[calls != NONE], calls[calls != NONE]
        enclosing = call_operators(events)[calls]
        is_graph = name_mask(self.trace.names, lambda name: "GraphLaunch" in name)[events.name_id[calls]]
        return among(self.kernels, rows[(enclosing != NONE) & ~is_graph])

    @cached_property
    def plain_kernels(self) -> Int64:
        """Rows of kernels that are known to multiply no matrices, ascending."""
        return np.sort(self.kernels[self.by_kernel.kind == PLAIN])

    def judged_share(self, judged: Mask) -> float:
        """Return the share of kernel time in some of the kept steps' kernels; 1 without kernels.

        ``judged``: for each kernel of :attr:`by_kernel`, whether a check can judge it.
        """
        all_ns = int(self._kernel_ns.sum())
        return int(self._kernel_ns[judged].sum()) / all_ns if all_ns else 1.0

    @cached_property
    def _kernel_ns(self) -> Int64:
        return self.trace.events.duration_ns[self.kernels]

    @cached_property
    def peak_ns(self) -> Float64:
        """The time of each call's operations at the peak rate; NaN if unknown."""
        found = [self.row.flops_per_s(each) if self.row else None for each in PRECISIONS]
        rates: Float64 = np.array([rate or np.nan for rate in (*found, None)])[self.precision]
        return self.calls.flops / rates * 1e9

    @cached_property
    def rate(self) -> AchievedRate | None:
        """The rate achieved in the kept steps; None if unknown for every call."""
        if self.row is None:
            return None
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

    def kernels_where(self, chosen: Mask) -> Int64:
        """Return the rows of some of the kept steps' kernels, ascending; a value for each of :attr:`by_kernel`."""
        return np.sort(self.kernels[chosen])

    def kernels_of(self, calls: Mask) -> Int64:
        """Return the rows of some calls' kernels in the kept steps, ascending."""
        rows = self.calls.kernel_rows[calls[self.calls.kernel_call]]
        return np.sort(rows[self._starts_inside(rows)])

    def time_ns(self, rows: Int64) -> int:
        """Return the summed durations of some rows."""
        return int(self.trace.events.duration_ns[rows].sum())

    def in_type(self, target: Precision, calls: Mask) -> Speedups | None:
        """Return the speed-ups of running some calls in another type; None if its rate is unknown."""
        if self.row is None or self.row.flops_per_s(target) is None:
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

    ``multiplying``: rows of the kernels of matrix products, convolutions and attention.
    """
    events = trace.events
    others = (events.kind[launches.work_rows] == Kind.KERNEL) & (launches.call_rows != NONE)
    others &= ~among(launches.work_rows, multiplying)
    rows, calls = launches.work_rows[others], launches.call_rows[others]
    named = events.name_id[tree.rows]
    plain = name_mask(trace.names, lambda name: bool(_IS_PLAIN.search(name)) and not _MAY_MULTIPLY.search(name))
    within = tree.nearest(name_mask(trace.names, FORMULAS.__contains__)[named]) != NONE
    owner = call_operators(events)[calls]
    return np.sort(rows[np.append(plain[named] | within, False)[owner]])  # a value, not a flag
