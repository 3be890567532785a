"""Large operators of the user's own code that no gradient goes back through."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from traceadvisor.analysis.operators.own_operators import OwnOperators, own_operators
from traceadvisor.analysis.sampled.shares import share_in_function
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Fix, Unit
from traceadvisor.rules.base import Facts
from traceadvisor.rules.gpu.costly_code import UNKNOWN, Cost, line_in

OF_WHOLE = "Check whether {} is needed on so many elements here, or a cheaper operator gives the same result"
ONCE = ". If its inputs stay the same, call it once, before the training"
OF_PIECES = "Call {} fewer times: once for several of its inputs, or less often than every step"

_DRAWS = re.compile(r"rand|normal|multinomial|bernoulli|uniform|exponential|poisson")
"""Operators with another result at each call."""


def large_operators(facts: Facts) -> Iterator[Cost]:
    """Yield the functions that large operators without gradients take most of."""
    found = own_operators(facts.observation, facts.tree, facts.steps.typical_windows, facts.step_count)
    return (_cost(facts, one) for one in found)


def _cost(facts: Facts, one: OwnOperators) -> Cost:
    events = facts.trace.events
    name = facts.trace.names[events.name_id[one.main[0]]].removeprefix("aten::")
    words = OF_PIECES if not one.is_whole else OF_WHOLE if _DRAWS.search(name) else OF_WHOLE + ONCE
    evidence = (
        facts.time_per_step(f"time of {name}", events.spans(one.main)),
        facts.count_per_step(f"calls of {name}", one.main.size),
        facts.known("shapes of the inputs of the longest call", _shapes(facts, one), Unit.TEXT),
    )
    sampled = share_in_function(facts.run.stack_samples, one.location)
    return Cost(
        Fix(words.format(name), not_replayed=UNKNOWN),
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
