"""Many small operators in the forward and backward pass of a training without a GPU, and the Python between them."""

from __future__ import annotations

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Effort, Estimate, Evidence, Facts, Fix, Outcome, Part, Unit
from traceadvisor.rules.idle.python_sites import MOST_SITES, own_sites, python_places

BETWEEN = Fix(
    "Run fewer, larger operators: replace Python loops by operators on whole tensors, compile the model, or use fused "
    "layers",
    not_replayed="how much Python remains between larger operators is unknown",
    needs=frozenset({Part.MODEL}),
)


@frozen
class SmallOperators:
    """Thresholds for small operators in the forward and backward pass, without a GPU."""

    min_between_share: float
    max_small_us: float
    min_small_share: float

    def check(self, facts: Facts, beside: SpanSet) -> Outcome | None:
        """Find small operators, if they and the Python between them take more than code beside the training."""
        between = facts.claim(Category.OTHER_HOST) - beside
        passes = between | (facts.claim(Category.FORWARD, Category.BACKWARD) - beside)
        claims = passes if self._are_small(facts, passes) else between
        if facts.share(claims) < max(self.min_between_share, facts.share(beside)):
            return None
        return _of_small_operators(facts, between, claims)

    def _are_small(self, facts: Facts, passes: SpanSet) -> bool:
        """Whether operators of the training passes do little besides being called."""
        events, rows = facts.trace.events, _outermost(facts)
        count = int(passes.contains(events.start_ns[rows]).sum())
        if not count or facts.share(passes) < self.min_small_share or facts.typical is None:
            return False
        undisturbed = (facts.step_ns or facts.typical.duration_ns) / facts.typical.duration_ns
        return passes.total_ns * min(undisturbed, 1.0) / count < self.max_small_us * 1000


def _outermost(facts: Facts) -> Int64:
    """Operators of the training thread in typical steps, without those inside others."""
    tree, events = facts.tree, facts.trace.events
    rows = tree.rows[(tree.thread == facts.observation.thread) & (tree.parent == NONE)]
    chosen: Int64 = rows[facts.steps.typical_windows.contains(events.start_ns[rows])]
    return chosen


def _of_small_operators(facts: Facts, between: SpanSet, claims: SpanSet) -> Outcome:
    """A finding on many small operators, and the Python between them."""
    events, rows = facts.trace.events, _outermost(facts)
    sites = own_sites(facts, between)[:MOST_SITES]
    places = [] if sites else python_places(facts, between, 0)
    return facts.finding(
        claims=claims,
        fix=BETWEEN,
        saving=Estimate.bound(facts.share(claims) * (facts.step_ns or 0.0), BETWEEN.not_replayed or ""),
        effort=Effort.REFACTOR,
        evidence=(
            facts.time_per_step("Python code between operators", between),
            facts.count_per_step("operators without those inside others", rows.size),
            Evidence("median operator", float(np.median(events.duration_ns[rows])), Unit.NS) if rows.size else None,
            *(facts.time_per_step(place.label, place.spans) for place in places[:MOST_SITES]),
            *(facts.time_per_step(site.label, site.spans) for site in sites),
        ),
        locations=tuple(dict.fromkeys(location for site in sites for location in site.locations)),
        caveats=("The profiler adds a few microseconds to each operator. Without it, this share is smaller.",),
    )
