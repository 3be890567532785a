"""IDLE005: Python's garbage collector stops the training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.operators.call_sites import call_sites
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Clear, Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

NOTHING_TOLD = "No Python calls were recorded (with_stack=True records them), and `traceadvisor capture` did not watch."

COLLECT = "<built-in function collect>"
"""``gc.collect`` as profilers name it; no other built-in function has that name."""

NOT_REPLAYED = "how many collections would be left, and when they would come, is not known"
IN_THE_LOOP = Fix("Take gc.collect() out of the loop", not_replayed=NOT_REPLAYED)
BY_ITSELF = Fix(
    "Take what there is before the loop out of later collections, and make these rarer",
    change="gc.collect(); gc.freeze(); gc.set_threshold(50_000, 20, 20)",
    not_replayed=NOT_REPLAYED,
)


@dataclass(frozen=True, slots=True)
class GcPause(Rule):
    """Everything waits while Python looks for garbage.

    What it finds: Calls of ``gc.collect`` inside steps, where stacks were recorded, as far as the device has nothing to
        do meanwhile; and in a captured run the time of all collections since the first step, those that Python makes by
        itself included.
    Why it costs time: A collection looks at every object that was made, and a program that trains has millions: models,
        data sets, compiled graphs. Nothing is launched meanwhile.
    How to fix it: Take ``gc.collect()`` out of the loop. Before the loop, ``gc.collect(); gc.freeze()`` takes what
        there is out of all later collections; ``gc.set_threshold(50_000, 20, 20)`` makes them rarer. With several
        ranks, collect on all of them in the same step.
    How the saving is estimated: As a bound: between nothing and all of that time, the middle being the expected value.
    When it may be wrong: Collections that the device hides cost nothing; a captured run does not tell these apart.
        Where memory is freed by collections alone, fewer of them take more memory.
    """

    meta = RuleMeta("IDLE005", "gc-pause", "Garbage collection stops the training")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"IDLE004", "IDLE006"})

    min_share: float = 0.03
    """Share of the training time; Python's own small collections take less than 1% of most."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of collections with the training time."""
        captured_share, longest_ns = facts.settings.gc_share, facts.settings.gc_longest_ns
        if captured_share is None and not facts.trace.python_calls.start_ns.size:
            return Skipped(NOTHING_TOLD)
        claims = _called(facts)
        share = max(facts.share(claims), captured_share or 0.0)
        if share < self.min_share:
            return Clear("collecting garbage", share, self.min_share, Unit.SHARE)
        sites = call_sites(facts.trace, facts.tree, facts.observation.thread, claims)[:1]
        told_share = None if longest_ns is None else captured_share
        return facts.finding(
            claims=claims,
            fix=IN_THE_LOOP if sites else BY_ITSELF,
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("in calls of gc.collect, with the device idle", claims),
                facts.known("of the run since its first step, in collections of any kind", told_share, Unit.SHARE),
                facts.known("longest of them", None if captured_share is None else longest_ns, Unit.NS),
            ),
            most_ns=share * (facts.mean.duration_ns if facts.mean else 0.0),
            locations=tuple(location for site in sites for location in site.locations),
            caveats=("Where memory is freed by collections alone, fewer of them take more memory.",),
        )


def _called(facts: Facts) -> SpanSet:
    """The kept steps' time in ``gc.collect`` in which no kernel runs."""
    calls, thread = facts.trace.python_calls, facts.observation.thread
    named = name_mask(facts.trace.names, lambda name: name == COLLECT)
    rows = np.flatnonzero(named[calls.name_id] & (calls.thread == thread))
    spans = SpanSet.union_of(calls.start_ns[rows], calls.end_ns[rows]) & facts.steps.kept_windows
    return spans - facts.claim(Category.KERNEL)
