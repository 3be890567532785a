"""IDLE005: Python's garbage collector stops the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceadvisor.analysis.operators.call_sites import call_sites
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Rule

_WHY_A_BOUND = "how many collections would be left, and when they would come, is not known"


NOTHING_TOLD = "No Python calls were recorded (with_stack=True records them), and `traceadvisor capture` did not watch."

COLLECT = "<built-in function collect>"
"""``gc.collect`` as profilers name it; no other built-in function has that name."""


@dataclass(frozen=True, slots=True)
class GcPause(Rule):
    """Everything waits while Python looks for garbage.

    What it finds
        Calls of ``gc.collect`` inside steps, where stacks were recorded, as far as the device has nothing to do
        meanwhile; and in a captured run the time of all collections since the first step, those that Python makes by
        itself included.

    Why it costs time
        A collection looks at every object that was made, and a program that trains has millions: models, data sets,
        compiled graphs. Nothing is launched meanwhile.

    How to fix it
        Take ``gc.collect()`` out of the loop. Before the loop, ``gc.collect(); gc.freeze()`` takes what there is out
        of all later collections; ``gc.set_threshold(50_000, 20, 20)`` makes them rarer. With several ranks, collect on
        all of them in the same step.

    How the saving is estimated
        As a bound: between nothing and all of that time, the middle being the expected value.

    When it may be wrong
        Collections that the device hides cost nothing; a captured run does not tell these apart. Where memory is freed
        by collections alone, fewer of them take more memory.
    """

    meta: ClassVar = RuleMeta(
        id="IDLE005",
        name="gc-pause",
        title="Garbage collection stops the training",
        needs=frozenset({Input.STEPS}),
        refines=frozenset({"IDLE004", "IDLE006"}),
    )

    min_share: float = 0.03
    """Share of the training time; Python's own small collections take less than 1% of most."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the time of collections with the training time."""
        captured_share = facts.settings.gc_share
        if captured_share is None and not facts.trace.python_calls.start_ns.size:
            return Skipped(NOTHING_TOLD)
        claims = _called(facts)
        share = max(facts.share(claims), captured_share or 0.0)
        if share < self.min_share:
            return Clear("collecting garbage", share, self.min_share, Unit.SHARE)
        return _finding(facts, claims, share)


def _called(facts: Facts) -> SpanSet:
    """The kept steps' time in ``gc.collect`` in which no kernel runs."""
    calls, thread = facts.trace.python_calls, facts.observation.thread
    named = name_mask(facts.trace.names, lambda name: name == COLLECT)
    rows = np.flatnonzero(named[calls.name_id] & (calls.thread == thread))
    spans = SpanSet.union_of(calls.start_ns[rows], calls.end_ns[rows]) & facts.steps.kept_windows
    return spans - facts.partition.get(Category.KERNEL, SpanSet.empty())


def _finding(facts: Facts, claims: SpanSet, share: float) -> Finding:
    sites = call_sites(facts.trace, facts.tree, facts.observation.thread, claims)[:1]
    recorded_ns = facts.mean.duration_ns if facts.mean else 0.0
    settings = facts.settings
    return Finding(
        rule=GcPause.meta,
        claims=claims,
        saving=facts.bound(share * recorded_ns, _WHY_A_BOUND),
        confidence=facts.confidence(),
        effort=Effort.LINE,
        evidence=(
            Evidence("in calls of gc.collect, with the device idle", facts.per_step_ns(claims), Unit.NS_PER_STEP),
            *_captured(settings.gc_share, settings.gc_longest_ns),
        ),
        fix=Fix(
            "Take gc.collect() out of the loop"
            if sites
            else "Take what there is before the loop out of later collections, and make these rarer",
            change=None if sites else "gc.collect(); gc.freeze(); gc.set_threshold(50_000, 20, 20)",
        ),
        locations=tuple(location for site in sites for location in site.locations),
        caveats=("Where memory is freed by collections alone, fewer of them take more memory.",),
    )


def _captured(share: float | None, longest_ns: int | None) -> tuple[Evidence, ...]:
    if share is None or longest_ns is None:
        return ()
    return (
        Evidence("of the run since its first step, in collections of any kind", share, Unit.SHARE),
        Evidence("longest of them", longest_ns, Unit.NS),
    )
