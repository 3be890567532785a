"""GPU025: the output layer computes scores of many positions that the loss leaves out."""

from __future__ import annotations

import math
import re

import numpy as np

from traceadvisor.analysis.operators.inputs import read_inputs
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Option, Skipped, Unit
from traceadvisor.model.run import IgnoredTargets
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen

UNKNOWN = "how long it takes to choose the positions is unknown"
FIX = Fix(
    "Choose the positions with a target before the output layer: scores of the others are computed for nothing",
    "kept = targets != -100  # or your ignore_index\n"
    "loss = F.cross_entropy(head(features[kept]), targets[kept])  # features: the input of the output layer",
    needs=frozenset({Part.BACKWARD}),
    not_replayed=UNKNOWN,
)

_PRODUCTS = re.compile(r"aten::(?:addmm|mm|linear|matmul|_addmm_activation|mkldnn_linear)$")
_LOSS = re.compile(r"aten::nll_loss(?:2d)?_forward$")

MOST_ROWS = 2
"""Scores beside those of targets: a model that predicts the next token leaves out the last one of each sample."""


MOST_PART = 1.2
"""Saving relative to that part of the time, at most: layers right before the product, and memory, are needed for fewer
positions, too. One masked language model: 1.1 of it measured."""


@frozen
class IgnoredTargetsComputed(Rule):
    """The output layer computes scores for positions that the loss leaves out.

    What it finds: A cross entropy that leaves out many of its targets by ``ignore_index``, as the capture counted in an
        early step, and the operators on all of its scores: the product that makes them, the loss, and their backward
        pass.
    Why it costs time: ``ignore_index`` skips no work: with a large vocabulary, the output layer may take longer than
        the rest of the model. A masked language model needs 15% of its scores; fine-tuning on answers, those of the
        answers.
    How to fix it: Choose the positions with a target first, and call the output layer on these only. The loss and the
        gradients stay the same up to rounding.
    How the saving is estimated: The share of left-out targets of the time in operators whose inputs have the sizes of
        all scores, and of the product before them: 0.9 of it is expected, 1.2 times is the upper limit.
    When it may be wrong: Scores of other positions may be used for something else. Each step then has another number
        of positions: compiled code needs a bound for it.
    """

    meta = RuleMeta("GPU025", "ignored-targets", "The output layer computes scores that the loss leaves out")
    needs = frozenset({Input.STEPS})
    claims = frozenset({Category.KERNEL, Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST})

    min_ignored_share: float = 0.3
    """Share of the targets. Leaving out fewer saves hardly more than the copy of the others costs."""

    min_share: float = 0.05
    """Share of the step. Less is not worth the change."""

    def check(self, facts: Facts) -> Outcome:
        found = facts.settings.ignored_targets
        if found is None:
            if facts.run.captured:
                return Skipped("The capture followed no cross entropy of one target for each position.")
            return Skipped(facts.unknown_without("How many targets the loss leaves out is unknown", Option.CAPTURE))
        if found.ignored_share < self.min_ignored_share:
            label = "share of the targets that the loss leaves out"
            return Clear(label, found.ignored_share, self.min_ignored_share, Unit.SHARE)
        rows = _rows_on_scores(facts, found)
        claims = facts.time_of(rows, Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST)
        share = found.ignored_share * facts.share(claims)
        if share < self.min_share:
            return Clear("time for scores that the loss leaves out", share, self.min_share, Unit.SHARE)
        saved_ns = share * (facts.step_ns or 0.0)
        names = facts.trace.names
        losses = [row for row in rows.tolist() if _LOSS.match(names[facts.trace.events.name_id[row]])]
        return finding_of(
            facts,
            claims=claims,
            fix=FIX,
            saving=Estimate(0.0, 0.9 * saved_ns, MOST_PART * saved_ns, Method.BOUND, of_the_fix(UNKNOWN)),
            effort=Effort.LINE,
            evidence=(
                Evidence("share of the targets that the loss leaves out", found.ignored_share, Unit.SHARE),
                Evidence("targets of a step", found.target_count, Unit.COUNT),
                Evidence("scores for each", found.class_count, Unit.COUNT),
                facts.time_per_step("time of operators on all scores", claims),
            ),
            locations=facts.locations(np.array(losses[:1], dtype=np.int64)),
            caveats=("The number of positions then differs from step to step: compiled code needs a bound for it.",),
        )


def _rows_on_scores(facts: Facts, found: IgnoredTargets) -> Int64:
    """The operators that take or make scores of all positions, in both passes."""
    trace, tree = facts.trace, facts.tree
    dims = trace.details.dims_id.at(tree.rows, np.int32(NONE))
    texts = {one: read_inputs(trace.texts[one], "", "").shapes for one in np.unique(dims[dims != NONE]).tolist()}
    takes = [one for one, shapes in texts.items() if any(_is_scores(shape, found) for shape in shapes)]
    makes = [one for one, shapes in texts.items() if _makes_scores(shapes, found)]
    is_product = np.array([_PRODUCTS.match(name) is not None for name in trace.names])
    chosen = np.isin(dims, takes) | (np.isin(dims, makes) & is_product[trace.events.name_id[tree.rows]])
    rows: Int64 = tree.rows[chosen]
    return rows


def _is_scores(shape: tuple[int, ...], found: IgnoredTargets) -> bool:
    """Whether a tensor has a score of each class for each position."""
    rows = math.prod(shape) / found.class_count
    return found.class_count in shape and found.target_count <= rows <= MOST_ROWS * found.target_count


def _makes_scores(shapes: tuple[tuple[int, ...], ...], found: IgnoredTargets) -> bool:
    """Whether a product of a tensor with rows for all positions and a weight for each class makes the scores."""
    weights = [shape for shape in shapes if len(shape) == 2 and found.class_count in shape]
    wide = [
        shape
        for shape in shapes
        for weight in weights
        if len(shape) >= 2 and shape is not weight and shape[-1] in weight
    ]
    rows = [math.prod(shape[:-1]) for shape in wide]
    return any(found.target_count <= count <= MOST_ROWS * found.target_count for count in rows)
