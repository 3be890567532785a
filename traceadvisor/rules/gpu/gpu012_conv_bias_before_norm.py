from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceadvisor.analysis.arithmetic.work import Kind as WorkKind
from traceadvisor.analysis.operators.inputs import Inputs, Shape, read_inputs
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int32, Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import Clear, Effort, Fix, Unit
from traceadvisor.model.once import once
from traceadvisor.model.trace import Trace
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen

MOST_PLACES = 5

CHANGE = "torch.nn.Conv2d(in_channels, out_channels, kernel_size, bias=False)  # keep your other arguments"

CONVOLUTION, BACKWARD = "aten::convolution", "aten::convolution_backward"

CALLERS = frozenset(f"aten::{name}" for name in ("conv1d", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d"))

NORMS = frozenset({"aten::batch_norm", "aten::_batch_norm_impl_index", "aten::native_batch_norm"})

_TRAINING = 5
"""Index of the input that is True in training mode. If it is not recorded, training mode is assumed."""

COUNTING = frozenset({"aten::add_", "aten::add"})
"""A batch norm counts its batches with these operators right before it starts."""

ADDING, SUMMING = frozenset({"aten::add_"}), frozenset({"aten::sum"})
"""Operators that add a bias, and that compute its gradient."""


@frozen
class ConvBiasBeforeNorm(Rule):
    """Convolutions that are followed by a batch norm have a bias.

    What it finds: Convolutions with a bias that a batch norm follows in the order of operators, and the kernels that
        add these biases or sum up their gradients.
    Why it costs time: A batch norm subtracts the mean of each channel, and with it the bias. Adding the bias is one
        pass over all activations; its gradient is another, and zero except for rounding.
    How to fix it: Use ``nn.Conv2d(..., bias=False)`` before a batch norm. To continue training from a checkpoint, drop
        its biases. To only evaluate one, also subtract each bias from the running mean.
    How the saving is estimated: The step is simulated without these kernels.
    When it may be wrong: The order of operators is not the data flow: the batch norm may have another input. In
        evaluation mode, the bias has an effect; such a batch norm is ignored if the recording contains its mode, which
        older torch versions do not record.
    """

    meta = RuleMeta("GPU012", "conv-bias-before-norm", "Convolutions before a batch norm have a bias without effect")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    training_only = True
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.005
    """Share of the step. Less is not worth a change of the model."""

    def check(self, facts: Facts) -> Outcome:
        events, found = facts.trace.events, needless_biases(facts.trace, facts.tree)
        work = facts.launched_by(found.work)
        rows = work[events.kind[work] == Kind.KERNEL]
        claims = facts.exposed(rows, Category.KERNEL)
        share = facts.share(claims)
        if share < self.min_share:
            label, judged = "kernel time of biases before a batch norm", _judged_share(facts)
            return Clear(label, share, self.min_share, Unit.SHARE, judged_share=judged)
        convolutions = events.within(facts.steps.typical_marks, found.convolutions)
        return finding_of(
            facts,
            claims=claims,
            fix=Fix("Remove the bias from these convolutions", CHANGE, what_if=SparedWork(rows)),
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("convolutions with a bias before a batch norm", convolutions.size),
                facts.count_per_step("kernels for these biases", rows.size),
                facts.time_per_step("kernel time of these biases", claims),
            ),
            locations=facts.locations(convolutions[: 1 + convolutions.size // facts.step_count], MOST_PLACES),
            caveats=("Keep the bias if the batch norm runs in evaluation mode.",),
        )


def _judged_share(facts: Facts) -> float:
    """Return the share of kernel time that is known to be no convolution, or one with recorded shapes."""
    work = facts.device_work
    shaped = np.append(facts.trace.details.dims_id.at(work.calls.rows, np.int32(NONE)) != NONE, False)
    kernels = work.by_kernel
    return work.judged_share(kernels.is_known & (~kernels.is_kind(WorkKind.CONVOLUTION) | shaped[kernels.call]))


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
