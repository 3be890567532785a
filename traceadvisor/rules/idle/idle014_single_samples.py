from __future__ import annotations

import re
from itertools import pairwise
from math import prod

import numpy as np

from traceadvisor.analysis.operators.inputs import Shape, read_inputs
from traceadvisor.analysis.steps.inference_workload import has_training
from traceadvisor.model.arrays import Int64, Mask, numbers_in
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.operator_sizes import MOST_USUAL_US, outermost_operators, usual_ns
from traceadvisor.savings.interval import most_undisturbed_ns

DOUBT = "how long operators take on more samples is unknown"

_BATCHES = """\
loader = DataLoader(dataset, batch_size=64)  # as many as memory allows; keep the other arguments
with torch.inference_mode():
    for inputs, *_ in loader:
        outputs = model(inputs)"""

_NO_GRADIENTS = """\
with torch.inference_mode():
    for inputs, *_ in loader:
        outputs = model(inputs)"""

TOGETHER = Fix(
    "Run several samples at once, with gradients disabled",
    _BATCHES,
    needs=frozenset({Part.MODEL, Part.LOADER}),
    not_replayed=DOUBT,
)
NO_GRADIENTS = Fix(
    "Disable gradients: no backward pass needs them", _NO_GRADIENTS, needs=frozenset({Part.MODEL}), not_replayed=DOUBT
)

SAMPLES = 64
"""Samples at once, of which one call of each operator takes the place of as many. Of a model of matrix products, 256
at once spared 97% of the time."""

GRADIENTS_SHARE = 0.3
"""Largest part of a small operator's call that goes into its node of a backward pass. A decoder took 14% longer."""


FEW_ROWS = 4
"""Rows of a matrix product up to which reading the weights takes longer than computing: each is used once for a row."""

_PRODUCT = re.compile(r"aten::(?:linear|addmm|mm|matmul|mv|addmv)$")


@frozen
class SingleSamples(Rule):
    """An inference loop on a CPU runs one sample at a time, or keeps what only a backward pass needs.

    What it finds: Iterations over a ``DataLoader`` without a backward pass, in a run without an optimizer, whose
        batches hold one sample and whose operators are small, or multiply all weights by a few rows; and operators
        that record gradients there.
    Why it costs time: Calling a small operator takes longer than what it computes, and reading the weights of a layer
        takes longer than using them for one row. With gradients enabled, each call also makes a node for a backward
        pass, which keeps its inputs in memory.
    How to fix it: Use larger batches, and ``torch.inference_mode()``.
    How the saving is estimated: Upper limit: 63 of 64 parts of the iteration, as for batches of 64; for gradients
        alone, 0.3 of the time outside the loader. Half of it is expected outside the loader, and nothing inside, which
        reads samples one by one also for a larger batch.
    When it may be wrong: Samples may come one by one, as from users, or differ in shape: then pad or sort them. The
        script may compute gradients of inputs in another place.
    """

    meta = RuleMeta("IDLE014", "single-samples", "Inference runs one sample at a time, or records gradients")
    needs = frozenset({Input.STEPS, Input.SETTINGS})
    claims = frozenset({Category.FORWARD, Category.OTHER_HOST})

    fewest_operators: int = 10
    """Operators per iteration. A model has a few for each layer."""

    min_share: float = 0.1
    """Share of the step that the fix may save."""

    def check(self, facts: Facts) -> Outcome:
        loader = facts.settings.loader
        if facts.observation.has_device or facts.settings.optimizer or has_training(facts.trace) or loader is None:
            return Skipped("The run is no inference loop on a CPU.")
        claims = facts.claim(Category.FORWARD, Category.OTHER_HOST)
        rows = outermost_operators(facts)
        rows = facts.trace.events.within(claims, rows)
        usual, with_gradients = usual_ns(facts, claims), _share_with_gradients(facts, rows)
        is_single = loader.batch_size == 1
        spared = 1 - 1 / SAMPLES if is_single else GRADIENTS_SHARE * with_gradients
        if rows.size < self.fewest_operators * max(facts.step_count, 1):
            count = rows.size / max(facts.step_count, 1)
            return Clear("operators of the model", count, self.fewest_operators, Unit.PER_STEP)
        if usual >= MOST_USUAL_US * 1000 and not (is_single and _read_weights_for_few_rows(facts, rows)):
            return Clear("usual operator", usual, MOST_USUAL_US * 1000, Unit.NS)
        if facts.share(claims) * spared < self.min_share:
            return Clear(
                "time that larger batches could save", facts.share(claims) * spared, self.min_share, Unit.SHARE
            )
        loading = facts.claim(Category.DATA_WAIT) if is_single else SpanSet.empty()
        model_ns, high_ns = (
            spared * most_undisturbed_ns(facts, facts.per_step_ns(one), one) for one in (claims, claims | loading)
        )
        return finding_of(
            facts,
            claims=claims,
            also_shortens=loading,
            fix=TOGETHER if is_single else NO_GRADIENTS,
            saving=Estimate(0.0, min(model_ns / 2, high_ns), high_ns, Method.BOUND, of_the_fix(DOUBT)),
            effort=Effort.LINE,
            evidence=(
                Evidence("samples in a batch", loader.batch_size, Unit.COUNT) if loader.batch_size else None,
                facts.count_per_step("operators without those inside others", rows.size),
                Evidence("usual operator", usual, Unit.NS),
                Evidence("share of operators that record gradients", with_gradients, Unit.SHARE),
            ),
            locations=(*(facts.loader_locations if is_single else ()), *facts.locations(rows[:1])),
            caveats=("If samples come one by one, or differ in shape, larger batches need padding or a queue.",),
        )


def _read_weights_for_few_rows(facts: Facts, rows: Int64) -> bool:
    """Whether most of the time of some operators is in matrix products that use their weights for a few rows."""
    trace, durations_ns = facts.trace, facts.trace.events.duration_ns[rows]
    ids = trace.details.dims_id.at(rows, np.int32(NONE))
    few = [
        one
        for one in numbers_in(ids)
        if one != NONE and (left := read_inputs(trace.texts[one], "", "").shapes) and _is_of_few_rows(left)
    ]
    is_few = np.isin(ids, few) & _are_products(facts, rows)
    return bool(2 * durations_ns[is_few].sum() >= durations_ns.sum())


def _is_of_few_rows(shapes: tuple[Shape, ...]) -> bool:
    """Whether a matrix product of a layer has few rows; a bias may be before the input."""
    left, right = next(((one, other) for one, other in pairwise(shapes) if len(one) > 1 and len(other) == 2), ((), ()))
    return bool(left) and prod(left[:-1]) <= FEW_ROWS < prod(right) // FEW_ROWS


def _are_products(facts: Facts, rows: Int64) -> Mask:
    is_product = np.array([_PRODUCT.match(name) is not None for name in facts.trace.names], dtype=np.bool_)
    found: Mask = is_product[facts.trace.events.name_id[rows]]
    return found


def _share_with_gradients(facts: Facts, rows: Int64) -> float:
    """Share of some operators that have a number of the backward pass."""
    numbers = facts.trace.details.sequence.at(rows, np.int64(NONE))
    return float((numbers != NONE).mean()) if rows.size else 0.0
