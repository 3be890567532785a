"""Device work that tensor cores can take, by the operator that launched it and the types it was given."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.launches import Launches
from traceadvisor.analysis.names import name_mask
from traceadvisor.analysis.operator_tree import OperatorTree
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace

MATRIX_OPERATORS = frozenset(
    {
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::addbmm",
        "aten::_addmm_activation",
        "aten::mv",
        "aten::addmv",
        "aten::cudnn_convolution",
        "aten::cudnn_convolution_add_relu",
        "aten::cudnn_convolution_relu",
        "aten::cudnn_convolution_transpose",
        "aten::cudnn_convolution_backward",
        "aten::cudnn_convolution_backward_input",
        "aten::cudnn_convolution_backward_weight",
        "aten::cudnn_convolution_transpose_backward",
        "aten::convolution_backward",
        "aten::miopen_convolution",
        "aten::_slow_conv2d_forward",
        "aten::slow_conv3d",
        "aten::_conv_depthwise2d",
        "aten::_cudnn_rnn",
        "aten::_cudnn_rnn_backward",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_flash_attention_backward",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_efficient_attention_backward",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_cudnn_attention_backward",
    }
)
"""The operators that launch matrix products, convolutions and attention themselves.

Those that merely call them (``aten::linear``, ``aten::conv2d``) are not listed: under autocast they are given float32
and cast before the work is launched.
"""

_FLOAT32 = frozenset({"float", "c10::Float", "Float"})
_FLOATING = _FLOAT32 | {"double", "c10::Half", "c10::BFloat16", "half", "Half", "BFloat16", "bfloat16"}


def float32_matrix_kernels(trace: Trace, launches: Launches, tree: OperatorTree) -> Int64:
    """Rows of the kernels launched within matrix operators whose floating-point inputs are all float32."""
    events = trace.events
    is_kernel = events.kind[launches.work_rows] == Kind.KERNEL
    launched = is_kernel & (launches.call_rows != NONE)
    kernels, calls = launches.work_rows[launched], launches.call_rows[launched]
    is_matrix = name_mask(trace.names, lambda name: name in MATRIX_OPERATORS)[events.name_id[tree.rows]]
    owner = tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    nearest = np.append(tree.nearest(is_matrix), NONE)[owner]
    float32 = np.append(_is_float32(trace, tree), False)[nearest]  # a value, not a flag
    rows: Int64 = kernels[(nearest != NONE) & float32]
    return rows


def _is_float32(trace: Trace, tree: OperatorTree) -> Mask:
    """For each operator of the tree, whether it was given float32 and no other floating-point type."""
    known = np.array([_only_float32(text) for text in trace.texts] + [False], dtype=np.bool_)
    return known[trace.details.dtypes_id.at(tree.rows, np.int32(NONE))]


def _only_float32(types: str) -> bool:
    floating = _FLOATING.intersection(types.split(";"))
    return bool(floating) and floating <= _FLOAT32
