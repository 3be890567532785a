"""Biases of convolutions that the next batch norm subtracts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceadvisor.analysis.operators.inputs import Inputs, Shape, read_inputs
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int32, Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.once import once
from traceadvisor.model.trace import Trace

CONVOLUTION, BACKWARD = "aten::convolution", "aten::convolution_backward"
CALLERS = frozenset(f"aten::{name}" for name in ("conv1d", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d"))
NORMS = frozenset({"aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm"})
_TRAINING = 5
"""Index of the input that is True in training mode. If it is not recorded, training mode is assumed."""

COUNTING = frozenset({"aten::add_", "aten::add"})
"""A batch norm counts its batches with these operators right before it starts."""

ADDING, SUMMING = frozenset({"aten::add_"}), frozenset({"aten::sum"})
"""Operators that add a bias, and that compute its gradient."""


@frozen(eq=False)
class NeedlessBiases:
    """Rows of the event table."""

    convolutions: Int64
    work: Int64
    """The operators that add the biases or compute their gradients."""


def needless_biases(trace: Trace, tree: OperatorTree) -> NeedlessBiases:
    """Return the convolutions with a bias before a batch norm; calls without recorded shapes are left out."""
    forward = _named(trace, tree, lambda name: name == CONVOLUTION)
    shapes = _shapes(trace, tree, np.flatnonzero(forward))
    needless = [at for at, (_, _, bias) in shapes.items() if len(bias) == 1 and _is_before_norm(trace, tree, at)]
    pairs = {shapes[at][:2] for at in needless} - {each[:2] for at, each in shapes.items() if at not in needless}
    backward = _shapes(trace, tree, np.flatnonzero(_named(trace, tree, lambda name: name == BACKWARD)))
    theirs = [at for at, each in backward.items() if each[1:] in pairs]
    work = np.concatenate((_inside(trace, tree, needless, ADDING), _inside(trace, tree, theirs, SUMMING)))
    return NeedlessBiases(tree.rows[np.array(needless, dtype=np.int64)], work)


def _named(trace: Trace, tree: OperatorTree, matches: Callable[[str], bool]) -> Mask:
    named: Mask = name_mask(trace.names, matches)[trace.events.name_id[tree.rows]]
    return named


def _inputs(trace: Trace, row: int) -> Inputs:
    """Return the shapes and values of an operator's inputs."""
    return _read(trace, *(int(column[0]) for column in _texts(trace, np.array([row]))))


def _texts(trace: Trace, rows: Int64) -> tuple[Int32, Int32]:
    """Return the texts of the shapes and of the values of some operators' inputs; NONE if not recorded."""
    details = trace.details
    return details.dims_id.at(rows, np.int32(NONE)), details.concrete_id.at(rows, np.int32(NONE))


@once
def _read(trace: Trace, dims_id: int, values_id: int) -> Inputs:
    dims, values = ("" if text == NONE else trace.texts[text] for text in (dims_id, values_id))
    return read_inputs(dims, "", values)


def _shapes(trace: Trace, tree: OperatorTree, places: Int64) -> dict[int, tuple[Shape, Shape, Shape]]:
    """Return the shapes of the first three inputs of some operators."""
    texts = zip(*(column.tolist() for column in _texts(trace, tree.rows[places])), strict=True)
    found = (_read(trace, *each) for each in texts)
    return {
        at: (inputs.shape(0), inputs.shape(1), inputs.shape(2))
        for at, inputs in zip(places.tolist(), found, strict=True)
    }


def _is_before_norm(trace: Trace, tree: OperatorTree, at: int) -> bool:
    """Return whether the next operator on the thread, after the convolution's call, subtracts the batch mean."""
    while (above := int(tree.parent[at])) != NONE and trace.names[trace.events.name_id[tree.rows[above]]] in CALLERS:
        at = above
    end = int(tree.end_ns[at])
    for later in range(at + 1, tree.rows.size):
        if tree.thread[later] != tree.thread[at]:
            return False
        if tree.start_ns[later] < end:
            continue
        name = trace.names[trace.events.name_id[tree.rows[later]]]
        if name not in COUNTING:
            return name in NORMS and _inputs(trace, int(tree.rows[later])).value(_TRAINING) is not False
    return False


def _inside(trace: Trace, tree: OperatorTree, outer: list[int], names: frozenset[str]) -> Int64:
    """Return the rows of operators with some names inside some outer operators."""
    chosen = np.zeros(tree.rows.size, dtype=np.bool_)
    chosen[np.array(outer, dtype=np.int64)] = True
    within = tree.nearest(chosen) != NONE
    rows: Int64 = tree.rows[within & _named(trace, tree, lambda name: name in names)]
    return rows
