"""Operators whose work grows with the square of the length of sequences: they pair each position with each."""

from __future__ import annotations

import re
from collections.abc import Container

import numpy as np

from traceadvisor.analysis.operators.forward import forward_operators
from traceadvisor.analysis.operators.inputs import Shape, read_inputs
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.trace import Trace

_FUSED = re.compile(r"scaled_dot_product|flash_attention|efficient_attention")
_PRODUCT = re.compile(r"aten::(?:matmul|baddbmm|bmm)$")
_OF_WEIGHTS = re.compile(r"aten::\w*(?:conv|linear|addmm|norm|lstm|gru|rnn)")
"""Operators with weights that may be square, too."""


def pair_rows(trace: Trace, tree: OperatorTree, lengths: Container[int]) -> Int64:
    """Return the rows of operators that pair positions, with their nodes of the backward pass.

    A fused attention without recorded shapes counts as one.

    Args:
        trace: the recording.
        tree: its operators.
        lengths: sizes that are a number of positions.
    """
    name_id, dims_id = trace.events.name_id[tree.rows], trace.details.dims_id.at(tree.rows, np.int32(NONE))
    distinct, place = np.unique(np.stack([name_id, dims_id]), axis=1, return_inverse=True)
    shown = [
        _pairs(trace.names[name], read_inputs(trace.texts[dims] if dims != NONE else "", "", "").shapes, lengths)
        for name, dims in distinct.T.tolist()
    ]
    is_pair = np.array(shown, dtype=np.bool_)[place.reshape(-1)]
    nodes, forward = forward_operators(trace, tree)
    is_pair[nodes[(forward != NONE) & np.append(is_pair, False)[forward]]] = True
    found: Int64 = tree.rows[is_pair]
    return found


def _pairs(name: str, shapes: tuple[Shape, ...], lengths: Container[int]) -> bool:
    """Return whether inputs of these shapes are, or make, a value for each pair of positions."""
    if _FUSED.search(name):
        query, key = (*shapes, (), ())[:2]
        return not query or not key or all(any(size in lengths for size in one[1:]) for one in (query, key))
    if _OF_WEIGHTS.match(name):
        return False
    if any(len(shape) > 2 and _has_twice(shape, lengths) for shape in shapes):
        return True
    left, right = ((), (), *(shape for shape in shapes if len(shape) > 2))[-2:]
    return bool(_PRODUCT.match(name) and left and right) and left[-2] == right[-1] and right[-1] in lengths


def _has_twice(shape: Shape, lengths: Container[int]) -> bool:
    return any(size in lengths and shape.count(size) > 1 for size in shape[1:])
