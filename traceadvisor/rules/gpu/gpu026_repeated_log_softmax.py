from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from traceadvisor.analysis.operators.inputs import Shape, read_inputs
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Fix, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen

FIX = Fix(
    "Leave out one of both: give the cross entropy the scores without log_softmax, or keep log_softmax and take "
    "nll_loss, which gives the same",
    "loss = F.nll_loss(log_probabilities, targets)  # in place of F.cross_entropy",
    needs=frozenset({Part.BACKWARD}),
    not_replayed="the time of other operators on these scores is unknown",
)

LOG_SOFTMAX, LOSS = "aten::log_softmax", "aten::cross_entropy_loss"
BACKWARD, ADDING = "aten::_log_softmax_backward_data", frozenset({"aten::add", "aten::add_"})

VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "view",
        "reshape",
        "transpose",
        "permute",
        "contiguous",
        "squeeze",
        "unsqueeze",
        "flatten",
        "t",
        "clone",
    )
)
"""Operators that may stand between both: they change the form of the scores, not their values."""


@frozen
class RepeatedLogSoftmax(Rule):
    """The loss computes ``log_softmax`` of values that are one already.

    What it finds: A cross entropy that follows ``log_softmax`` on as many values, with nothing but changes of their
        form in between, and the second ``log_softmax`` inside of the loss, with its backward pass. The backward pass
        has to go through both, and to add no other gradient behind them: else the loss takes the scores themselves.
    Why it costs time: ``log_softmax`` of its own result changes nothing. With a large vocabulary, each one reads and
        writes all scores, again in the backward pass.
    How to fix it: Return the scores from the model without ``log_softmax``, or take ``nll_loss`` in place of the cross
        entropy. Both give the same loss and gradients up to rounding.
    How the saving is estimated: Upper limit: the time of the operators inside of the loss, and of one of both in the
        backward pass.
    When it may be wrong: The first ``log_softmax`` may go over another dimension than the classes.
    """

    meta = RuleMeta("GPU026", "repeated-log-softmax", "The loss takes log_softmax of what has it already")
    needs = frozenset({Input.STEPS, Input.SHAPES})
    training_only = True
    claims = frozenset({Category.KERNEL, Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST})

    min_share: float = 0.01
    """Share of the step. Less is noise."""

    def check(self, facts: Facts) -> Outcome:
        firsts, losses = _repeated(facts)
        rows = facts.trace.events.within(facts.steps.typical_windows, _needless(facts, losses))
        claims = facts.time_of(rows, Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST)
        share = facts.share(claims)
        if share < self.min_share:
            return Clear("time in a second log_softmax of the same values", share, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=claims,
            fix=FIX,
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("time in the second log_softmax and its backward pass", claims),
                facts.count_per_step(
                    "losses of values with log_softmax",
                    facts.trace.events.within(facts.steps.typical_windows, facts.tree.rows[losses]).size,
                ),
            ),
            locations=tuple(
                dict.fromkeys(
                    (*facts.locations(facts.tree.rows[losses[:1]]), *facts.locations(facts.tree.rows[firsts[:1]]))
                )
            ),
            caveats=("If the first log_softmax goes over another dimension than the classes, this is no repetition.",),
        )


def _named(facts: Facts, name: str) -> Int64:
    """Positions in the tree of operators with a name."""
    numbers = [number for number, one in enumerate(facts.trace.names) if one == name]
    positions: Int64 = np.flatnonzero(np.isin(facts.trace.events.name_id[facts.tree.rows], numbers))
    return positions


def _repeated(facts: Facts) -> tuple[Int64, Int64]:
    """Positions in the tree of the first ``log_softmax`` and of the loss, of those where the loss takes its result.

    The backward pass shows that: it goes through both, one right after the other, and adds no other gradient to theirs.
    """
    pairs = list(_pairs(facts))
    tree, names, name_of = facts.tree, facts.trace.names, facts.trace.events.name_id
    backward = _named(facts, BACKWARD)
    nexts = np.minimum(backward[1::2] + 1, max(tree.rows.size - 1, 0))
    is_added = any(names[name_of[tree.rows[at]]] in ADDING for at in nexts.tolist())
    if backward.size != 2 * len(pairs) or is_added:
        pairs = []
    firsts, losses = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    return firsts, losses


def _pairs(facts: Facts) -> Iterator[tuple[int, int]]:
    """Positions in the tree of each first ``log_softmax`` and of the loss that follows it."""
    tree, names, name_of = facts.tree, facts.trace.names, facts.trace.events.name_id
    for first in _named(facts, LOG_SOFTMAX).tolist():
        above, end_ns = int(tree.parent[first]), int(tree.end_ns[first])
        if above != NONE and names[name_of[tree.rows[above]]] == LOSS:
            continue
        for later in range(first + 1, tree.rows.size):
            if tree.thread[later] != tree.thread[first]:
                break
            if tree.start_ns[later] < end_ns:
                continue
            name = names[name_of[tree.rows[later]]]
            if name == LOSS and _are_same(_shape(facts, first), _shape(facts, later)):
                yield first, later
            if name not in VIEWS:
                break
            end_ns = int(tree.end_ns[later])


def _shape(facts: Facts, position: int) -> Shape:
    """The shape of an operator's first input; empty if it is unknown."""
    text = int(facts.trace.details.dims_id.at(facts.tree.rows[position : position + 1], np.int32(NONE))[0])
    return read_inputs("" if text == NONE else facts.trace.texts[text], "", "").shape(0)


def _are_same(scores: Shape, of_loss: Shape) -> bool:
    """Whether the loss may take these scores: as many values, and its classes are one of their dimensions."""
    if not scores or not of_loss or math.prod(scores) != math.prod(of_loss):
        return False
    return of_loss[min(1, len(of_loss) - 1)] in scores


def _needless(facts: Facts, losses: Int64) -> Int64:
    """Rows of the operators inside of the losses that change nothing, and of their part of the backward pass."""
    tree, inner = facts.tree, _named(facts, LOG_SOFTMAX)
    is_loss = np.zeros(tree.rows.size, dtype=np.bool_)
    is_loss[losses] = True
    inside = inner[tree.nearest(is_loss)[inner] != NONE]
    mine = _named(facts, BACKWARD)[::2] if losses.size else losses
    rows: Int64 = np.concatenate((tree.rows[inside], tree.rows[mine]))
    return rows
