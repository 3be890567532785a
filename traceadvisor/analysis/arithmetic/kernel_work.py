"""Work of each kernel, from the operator that launched it or else from its name."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.arithmetic.kernel_names import read_kernel_name
from traceadvisor.analysis.arithmetic.matrix_work import KINDS, PRECISIONS, MatrixWork
from traceadvisor.analysis.arithmetic.work import Kind as WorkKind
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.frozen import frozen
from traceadvisor.hardware.devices import Precision, has_tf32
from traceadvisor.model.arrays import Int64, Mask, among, one_of
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.run import RunSettings
from traceadvisor.model.trace import Device, Trace

PLAIN = -2
"""Kind of a kernel that is known to multiply no matrices. NONE: unknown."""

_FLOAT32, _TF32 = PRECISIONS.index(Precision.FP32), PRECISIONS.index(Precision.TF32)


@frozen(eq=False)
class NamedKernels:
    """Properties of kernels by name number; arrays of shape ``(names,)``, filled for a device's kernels only."""

    kind: NDArray[np.int8]
    """Position in ``KINDS``, :data:`PLAIN`, or NONE."""

    precision: NDArray[np.int8]
    """Position in ``PRECISIONS``, or NONE: the type in which factors are multiplied."""

    alignment: Int64
    """Elements, or NONE."""

    off_tensor_cores: Mask
    """Whether a matrix operation runs on ordinary cores."""

    is_generated: Mask
    """Whether torch's compiler generated the kernel."""

    is_fusable: Mask
    """Whether torch's compiler can fuse it with others."""


def named_kernels(trace: Trace, launches: Launches) -> NamedKernels:
    """Read the names of a device's kernels, each once."""
    rows = launches.work_rows[trace.events.kind[launches.work_rows] == Kind.KERNEL]
    numbers = np.unique(trace.events.name_id[rows])
    found = [read_kernel_name(trace.names[number]) for number in numbers.tolist()]
    count = len(trace.names)
    kind, precision = np.full(count, NONE, np.int8), np.full(count, NONE, np.int8)
    alignment = np.full(count, NONE, np.int64)
    off_tensor_cores, is_generated, is_fusable = (np.zeros(count, np.bool_) for _ in range(3))
    kind[numbers] = [KINDS.index(each.kind) if each.kind else PLAIN if each.is_plain else NONE for each in found]
    precision[numbers] = [PRECISIONS.index(each.precision) if each.precision else NONE for each in found]
    alignment[numbers] = [each.alignment or NONE for each in found]
    off_tensor_cores[numbers] = [each.tensor_cores is False for each in found]
    is_generated[numbers] = [each.is_generated for each in found]
    is_fusable[numbers] = [each.is_fusable for each in found]
    return NamedKernels(kind, precision, alignment, off_tensor_cores, is_generated, is_fusable)


_BYTES = np.array([each.byte_count for each in PRECISIONS] + [np.iinfo(np.int64).max])
"""Bytes of an element by position in ``PRECISIONS``; the last, for NONE, is wider than any."""


def stored_precision(trace: Trace, work: MatrixWork, named: NamedKernels) -> NDArray[np.int8]:
    """Return the stored type of each call's factors: the narrower of the operator's and its kernels' names'.

    A cast inside an operator is not recorded, and then its kernels read a narrower type than the operator.
    """
    names = trace.events.name_id[work.kernel_rows]
    told = _as_stored(named.precision[names])
    told[named.kind[names] < 0] = NONE
    order = np.lexsort((told, _BYTES[told], work.kernel_call))
    calls, first = np.unique(work.kernel_call[order], return_index=True)
    by_name = np.full(work.kind.size, NONE, np.int8)
    by_name[calls] = told[order][first]
    return np.where(_BYTES[by_name] < _BYTES[work.precision], by_name, work.precision)


def _as_stored(precision: NDArray[np.int8]) -> NDArray[np.int8]:
    return np.where(precision == _TF32, np.int8(_FLOAT32), precision)


def run_precision(  # noqa: PLR0913, PLR0917  # three sources of the same figure
    trace: Trace,
    work: MatrixWork,
    stored: NDArray[np.int8],
    named: NamedKernels,
    device: Device | None,
    settings: RunSettings,
) -> NDArray[np.int8]:
    """Return each call's position in ``PRECISIONS``; NONE if unknown, for example float32 that may have been TF32.

    The device decides first: AMD's and older ones have no TF32, whatever the settings (torch allows it for convolutions
    by default). Next come kernel names, then the settings.
    """
    if _is_without_tf32(device):
        return stored
    precision = stored.copy()
    is_float32 = stored == _FLOAT32
    precision[is_float32] = _by_settings(settings)[work.kind[is_float32]]
    names = trace.events.name_id[work.kernel_rows]
    for code in (_FLOAT32, _TF32):  # a call with kernels of both is TF32
        told = work.kernel_call[(named.kind[names] >= 0) & (named.precision[names] == code)]
        precision[told[is_float32[told]]] = code
    return precision


def _is_without_tf32(device: Device | None) -> bool:
    is_known = device is not None and (device.name is not None or device.compute_capability is not None)
    return is_known and not has_tf32(device)


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


@frozen(eq=False)
class KernelWork:
    """Work of some kernels; arrays of shape ``(k,)``."""

    rows: Int64
    """Rows of the event table, by start."""

    call: Int64
    """The call that launched a kernel, as a position in :class:`MatrixWork`; NONE without one."""

    kind: NDArray[np.int8]
    """Position in ``KINDS``, :data:`PLAIN`, or NONE if unknown."""

    stored: NDArray[np.int8]
    """Stored type of the factors: position in ``PRECISIONS``, or NONE."""

    precision: NDArray[np.int8]
    """Type in which they are multiplied."""

    alignment: Int64
    """Elements that the kernel's name says it loads together; NONE if it does not say."""

    off_tensor_cores: Mask
    is_generated: Mask
    """Whether torch's compiler generated it."""

    is_fusable: Mask
    """Whether torch's compiler could fuse it: a pointwise operation, a reduction or a normalisation of torch."""

    @classmethod
    def of(  # noqa: PLR0913, PLR0917  # operators and names of a device's kernels
        cls,
        trace: Trace,
        rows: Int64,
        plain: Int64,
        calls: MatrixWork,
        stored: NDArray[np.int8],
        precision: NDArray[np.int8],
        named: NamedKernels,
    ) -> Self:
        """Combine operators and names. A name with a type outweighs an operator that multiplies nothing.

        Args:
            trace: the recording.
            rows: the kernels.
            plain: rows of kernels whose operator multiplies nothing, ascending.
            calls: of operators that multiply.
            stored: of each call.
            precision: of each call.
            named: what names tell.
        """
        names = trace.events.name_id[rows]
        call = np.full(len(trace.events), NONE, np.int64)
        call[calls.kernel_rows] = calls.kernel_call
        call = call[rows]
        has_call = call != NONE
        kind, is_plain = named.kind[names], among(rows, plain)
        kind[(named.precision[names] == NONE) & is_plain] = PLAIN
        kind[has_call] = calls.kind[call[has_call]]
        is_fusable = (kind == PLAIN) & (is_plain | named.is_fusable[names]) & ~named.is_generated[names]
        by_name = np.where(kind >= 0, named.precision[names], np.int8(NONE))
        return cls(
            rows=rows,
            call=call,
            kind=kind,
            stored=np.where(has_call, np.append(stored, np.int8(NONE))[call], _as_stored(by_name)),
            precision=np.where(has_call, np.append(precision, np.int8(NONE))[call], by_name),
            alignment=named.alignment[names],
            off_tensor_cores=named.off_tensor_cores[names],
            is_generated=named.is_generated[names],
            is_fusable=is_fusable,
        )

    @property
    def is_known(self) -> Mask:
        """Whether the kind of work is known."""
        known: Mask = self.kind != NONE
        return known

    @property
    def is_matrix(self) -> Mask:
        """Whether it is a matrix operation."""
        known: Mask = self.kind >= 0
        return known

    @property
    def is_typed(self) -> Mask:
        """Whether it is known to be no matrix operation, or one with a known stored type."""
        typed: Mask = (self.kind == PLAIN) | (self.is_matrix & (self.stored != NONE))
        return typed

    def is_kind(self, *kinds: WorkKind) -> Mask:
        """Whether it is one of the kinds of matrix operations."""
        return one_of(self.kind, *map(KINDS.index, kinds))

    def is_stored_in(self, *precisions: Precision) -> Mask:
        """Whether it is a matrix operation with factors in one of the types."""
        return self.is_matrix & one_of(self.stored, *map(PRECISIONS.index, precisions))

    def is_run_in(self, *precisions: Precision) -> Mask:
        """Whether it is a matrix operation that multiplies in one of the types."""
        return self.is_matrix & one_of(self.precision, *map(PRECISIONS.index, precisions))
