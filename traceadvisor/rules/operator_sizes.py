"""How much of some time the elements of operators take, and how much calling them does."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.names import UsualDurations, usual_durations
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Facts

MOST_USUAL_US = 35.0
"""Recorded duration of the usual operator of each name, on average, up to which operators are small however long the
machine held them up. A recording adds a few microseconds to each, and a node of the backward pass holds several."""

MOST_APART_NS = 100_000
"""Time from one operator of a loop to the next that counts, at most: more is other work, or a large operator."""


def has_large_operators(facts: Facts, lost: SpanSet) -> bool:
    """Whether the elements of operators on the CPU take most of some time: calling them less often saves little."""
    usual, rows = _usual(facts, lost), operators_in(facts, lost)
    elements_ns = 0.0 if facts.observation.has_device else remaining_ns(facts, lost, MOST_USUAL_US * 1000)
    in_operators_ns = (facts.trace.events.spans(rows) & lost).total_ns
    return in_operators_ns > lost.total_ns / 2 and elements_ns > usual.total_ns / 2


def remaining_ns(facts: Facts, passes: SpanSet, calling_ns: float) -> float:
    """Time of operators beyond that of calling them, by the usual one of each name: one may have waited for a core."""
    usual = _usual(facts, passes)
    return float(usual.counts @ np.maximum(usual.usual_ns - calling_ns, 0.0))


def usual_ns(facts: Facts, passes: SpanSet) -> float:
    """Mean duration of operators, by the usual one of each name."""
    usual = _usual(facts, passes)
    return usual.total_ns / max(int(usual.counts.sum()), 1)


def _usual(facts: Facts, passes: SpanSet) -> UsualDurations:
    """The usual durations of the operators in the passes: a large one is not as short as a small one of its name."""
    rows = operators_in(facts, passes)
    shapes = facts.trace.details.dims_id.at(rows, np.int32(NONE)).astype(np.int64)
    return usual_durations(facts.trace.events, rows, shapes)


def looped_ns(facts: Facts, rows: Int64) -> int:
    """Time of a loop over some operators: from each to the next, as far as that is no other work."""
    gaps_ns = np.diff(np.sort(facts.trace.events.start_ns[rows]))
    return int(np.minimum(gaps_ns, MOST_APART_NS).sum())


def operators_in(facts: Facts, passes: SpanSet) -> Int64:
    """Outermost operators that start in the passes."""
    return facts.trace.events.within(passes, outermost_operators(facts))


def outermost_operators(facts: Facts) -> Int64:
    """Operators of the training thread in typical steps, without those inside others."""
    rows = facts.tree.rows[facts.tree.tops(facts.observation.thread)]
    return facts.trace.events.within(facts.steps.typical_windows, rows)
