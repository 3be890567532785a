"""In which number type matrices were really multiplied: float32 may have been rounded to TF32 on the way."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.arithmetic.matrix_work import KINDS, PRECISIONS, MatrixWork
from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.hardware.devices import Precision, device_row
from traceadvisor.model.events import NONE
from traceadvisor.model.run import RunSettings
from traceadvisor.model.trace import Device, Trace

FIRST_TF32_CAPABILITY = (8, 0)
"""Ampere."""

_IN_TF32 = re.compile(r"tf32|tensorop_s1688")
_IN_FLOAT32 = re.compile(r"simt|ffma|sgemm|scudnn")
"""What cuBLAS, cuDNN and CUTLASS write into the names of kernels; of names with both, the former counts: CUTLASS calls
its TF32 products ``tensorop_s1688gemm``. https://docs.nvidia.com/cutlass, "Functionality"."""

_FLOAT32, _TF32 = PRECISIONS.index(Precision.FP32), PRECISIONS.index(Precision.TF32)


def has_tf32(device: Device | None) -> bool:
    """Whether a device is known to have TF32: NVIDIA's do, from Ampere on; on AMD's PyTorch does not use it."""
    capability = _capability(device) if device else None
    return capability is not None and capability >= FIRST_TF32_CAPABILITY


def _capability(device: Device) -> tuple[int, int] | None:
    row = device_row(device)
    return device.compute_capability or (row.capability if row else None)


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
        Kind.MATMUL: settings.matmul_tf32,
        Kind.CONVOLUTION: settings.cudnn_tf32,
        Kind.RECURRENT: settings.cudnn_tf32,
        Kind.ATTENTION: None,
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
