"""GPU021: one place in the script takes much of the step in operators."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceadvisor.analysis.operators.inputs import read_inputs
from traceadvisor.analysis.operators.own_operators import OwnOperators, own_operators
from traceadvisor.analysis.sampled.shares import share_in_function
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.gpu.costly_code import UNKNOWN, Cost, backward_of, costs, line_in, outermost_in

OF_ELEMENTS = (
    "If the result of {0} is needed for a part of the elements, call it on these. If a cheaper operator gives the same "
    "result, call that"
)

ONCE = ". If the inputs stay the same, call it once, before the training"

_DRAWS = re.compile(r"rand|normal|multinomial|bernoulli|uniform|exponential|poisson")
"""Operators with another result at each call."""

OF_ONE_HOT = Fix(
    "Take rows of the weight in place of this product: torch.nn.Embedding, or EmbeddingBag for the sum over several "
    "columns. A one-hot tensor times a weight only picks its rows",
    not_replayed=UNKNOWN,
)

_MAKES = re.compile(r"aten::one_hot$")

_KEEPS = re.compile(
    r"aten::(?:one_hot|select|slice|unbind|cat|concat|stack|to|_to_copy|type_as|\w*view|reshape|flatten|\w*squeeze)$"
)
"""Operators that leave a one-hot tensor what it is, and those that take the indices of the next one."""

_MULTIPLIES = re.compile(r"aten::(?:linear|matmul|mm)$")

MOST_BETWEEN = 512
"""Operators from a one-hot tensor to its product: a table has fewer columns."""


@frozen
class CostlyOperators(Rule):
    """Without a GPU, one place in the script takes much of the step in operators that could do less.

    What it finds: A line or function in a training without a GPU, which the finding names, with one of these. A weight
        with a parametrization, such as orthogonal or weight norm, that is computed several times in a step.
        Decompositions of matrices: SVD, eigenvalues, QR, pseudo-inverse. Sorting the indices of a sparse tensor in each
        step, in a function without gradients that no data loader feeds. A difference or a repetition of tensors with at
        least 8 times their elements, and the operators on it, unless one is an activation. One-hot tensors that a
        weight or a table of codes multiplies. Python code in an ``autograd.Function`` of the script. One large operator
        that takes most of a function of the script through which no gradient goes back; the finding has its shapes.
        Layers of a model do not count.
    Why it costs time: The same result is computed again, a large tensor passes through memory where a small one would
        do, or Python computes number by number.
    How to fix it: Wrap the step in ``parametrize.cached()``. Compute only the singular values, or a bound of them. Make
        the normalised graph once. Replace an operator by a cheaper one, or call it on fewer elements. Use
        ``torch.nn.Embedding`` instead of one-hot tensors, ``torch.cdist`` or a matrix product for distances.
    How the saving is estimated: Upper limit: these operators, their Python code, and their part of the backward pass,
        without the first computation of each weight in a step. Except for parametrizations, one-hot tensors and
        Python code of an ``autograd.Function``, the report states this time and promises no saving.
        Python code counts at most by its share of samples of
        undisturbed steps.
    When it may be wrong: A graph that changes from step to step has to be made anew. The model may need the
        decomposition. What replaces a large tensor takes time, too. Spectral norm is estimated again at each call; once
        per step, it is a little behind.
    """

    meta = RuleMeta("GPU021", "costly-operators", "One place takes much of the step in operators")
    needs = frozenset({Input.STEPS, Input.REAL_STEP})
    refines = frozenset({"IDLE004"})
    claims = frozenset({Category.FORWARD, Category.BACKWARD, Category.OTHER_HOST})

    min_share: float = 0.15
    """Share of the step. The norm of a batch, or the mask of an attention, takes less."""

    def check(self, facts: Facts) -> Outcome:
        if facts.observation.has_device:
            return Skipped("With a GPU, operators only launch its work.")
        named, large = (
            max(found, key=lambda one: one.claims.total_ns, default=None)
            for found in ((*costs(facts), *one_hot_products(facts)), large_operators(facts))
        )
        # What a known kind of code costs has a fix of its own.
        most = named if named and self._share(facts, named) >= self.min_share else large or named
        claims = most.claims & facts.claim(*self.claims) if most else facts.claim()
        sampled, share = (most.most_share, self._share(facts, most)) if most else (None, 0.0)
        if most is None or share < self.min_share:
            return Clear("time in one place with costly operators", share, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=claims,
            fix=most.fix,
            effort=Effort.LINE,
            saving=Estimate.bound(share * (facts.step_ns or 0.0), of_the_fix(UNKNOWN)) if sampled is not None else None,
            evidence=(
                *most.evidence,
                facts.time_per_step("time of these operators", claims),
                Evidence("share of the step", share, Unit.SHARE),
            ),
            locations=most.locations,
        )

    def _share(self, facts: Facts, cost: Cost) -> float:
        """The share of the step that a cost takes, at most that of samples."""
        recorded = facts.share(cost.claims & facts.claim(*self.claims))
        return recorded if cost.most_share is None else min(recorded, cost.most_share)


def large_operators(facts: Facts) -> Iterator[Cost]:
    """Yield the functions that large operators without gradients take most of."""
    found = own_operators(facts.observation, facts.tree, facts.steps.typical_windows, facts.step_count)
    return (_cost(facts, one) for one in found)


def _cost(facts: Facts, one: OwnOperators) -> Cost:
    events = facts.trace.events
    name = facts.trace.names[events.name_id[one.main[0]]].removeprefix("aten::")
    words = OF_ELEMENTS + ONCE if one.is_whole and not _DRAWS.search(name) else OF_ELEMENTS
    evidence = (
        facts.time_per_step(f"time of {name}", events.spans(one.main)),
        facts.count_per_step(f"calls of {name}", one.main.size),
        facts.known("shapes of the inputs of the longest call", _shapes(facts, one), Unit.TEXT),
    )
    sampled = share_in_function(facts.run.stack_samples, one.location)
    return Cost(
        Fix(words.format(name), not_replayed=UNKNOWN, is_conditional=True),
        events.spans(one.rows),
        tuple(row for row in evidence if row),
        (line_in(facts, one.location, one.main),),
        sampled.high * facts.timing.rest_share if sampled else None,
    )


def _shapes(facts: Facts, one: OwnOperators) -> str | None:
    """The recorded shapes of the inputs of the longest call; None without them."""
    longest = one.main[[int(facts.trace.events.duration_ns[one.main].argmax())]]
    (text,) = facts.trace.details.dims_id.at(longest, np.int32(NONE)).tolist()
    return facts.trace.texts[text] if text != NONE else None


def one_hot_products(facts: Facts) -> Iterator[Cost]:
    """Yield the operators from one-hot tensors to their product with a weight, with its backward pass."""
    events, names, rows = facts.trace.events, facts.trace.names, outermost_in(facts, facts.steps.typical_windows)
    kinds = [names[name] for name in events.name_id[rows].tolist()]
    found, end = [], 0
    for first in (place for place, kind in enumerate(kinds) if _MAKES.match(kind)):
        last = _product(kinds, first) if first >= end else None
        if last is not None and _takes(facts, rows[first : last + 1]):
            end = last + 1
            found.append(rows[first:end])
    if found:
        yield _one_hot_cost(facts, np.concatenate(found))


def _product(kinds: list[str], first: int) -> int | None:
    """Return the place of the product that takes a one-hot tensor; None if something else may take it."""
    for place in range(first + 1, min(first + MOST_BETWEEN, len(kinds))):
        if not _KEEPS.match(kinds[place]):
            return place if _MULTIPLIES.match(kinds[place]) else None
    return None


def _takes(facts: Facts, rows: Int64) -> bool:
    """Whether the last of some operators takes what the one-hot tensors among them make: by its width."""
    trace, made = facts.trace, 0
    columns = (
        column.at(rows, np.int32(NONE)).tolist() for column in (trace.details.dims_id, trace.details.concrete_id)
    )
    width = 0
    for name_id, *texts in zip(trace.events.name_id[rows].tolist(), *columns, strict=True):
        shapes, values = (trace.texts[text] if text != NONE else "" for text in texts)
        inputs = read_inputs(shapes, "", values)
        classes = inputs.value(1) if _MAKES.match(trace.names[name_id]) else 0
        made += classes if isinstance(classes, int) else 0
        width = (inputs.shape(0) or (0,))[-1]
    return width / 2 <= made <= width and made > 0


def _one_hot_cost(facts: Facts, rows: Int64) -> Cost:
    events, names = facts.trace.events, facts.trace.names
    spans: SpanSet = events.spans(rows)
    kinds = [names[name] for name in events.name_id[rows].tolist()]
    made, products = ([pattern.match(kind) is not None for kind in kinds] for pattern in (_MAKES, _MULTIPLIES))
    evidence = (
        facts.count_per_step("one-hot tensors that a weight multiplies", sum(made)),
        facts.count_per_step("products with them", sum(products)),
    )
    return Cost(OF_ONE_HOT, spans | backward_of(facts)(spans), evidence, facts.locations(rows[np.array(made)]))
