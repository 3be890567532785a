"""Products of a weight with one-hot tensors, which only pick rows of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceadvisor.analysis.operators.inputs import read_inputs
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Fix
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Facts
from traceadvisor.rules.gpu.costly_code import UNKNOWN, Cost, backward_of, outermost_in

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

_MULTIPLIES = re.compile(r"aten::linear$")

MOST_BETWEEN = 512
"""Operators from a one-hot tensor to its product: a table has fewer columns."""


def one_hot_products(facts: Facts) -> Iterator[Cost]:
    """Yield the operators from one-hot tensors to their product with a weight, with its backward pass."""
    events, names, rows = facts.trace.events, facts.trace.names, outermost_in(facts, facts.steps.typical_windows)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    kinds = [names[name] for name in events.name_id[rows].tolist()]
    found, end = [], 0
    for first in (place for place, kind in enumerate(kinds) if _MAKES.match(kind)):
        last = _product(kinds, first) if first >= end else None
        if last is not None and _takes(facts, rows[first : last + 1]):
            end = last + 1
            found.append(rows[first:end])
    if found:
        yield _cost(facts, np.concatenate(found))


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


def _cost(facts: Facts, rows: Int64) -> Cost:
    events, names = facts.trace.events, facts.trace.names
    spans: SpanSet = events.spans(rows)
    kinds = [names[name] for name in events.name_id[rows].tolist()]
    made, products = ([pattern.match(kind) is not None for kind in kinds] for pattern in (_MAKES, _MULTIPLIES))
    evidence = (
        facts.count_per_step("one-hot tensors that a weight multiplies", sum(made)),
        facts.count_per_step("products with them", sum(products)),
    )
    return Cost(OF_ONE_HOT, spans | backward_of(facts)(spans), evidence, facts.locations(rows[np.array(made)]))
