"""DATA008: the training thread itself runs the code that makes batches."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.data.loading_sites import loading_sites
from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.rules.base import Clear, Effort, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit

MOST_SITES = 5


@dataclass(frozen=True, slots=True)
class CollateInMain(Rule):
    """Functions of the script make batches in the training thread while the device waits.

    What it finds: Time in which nothing runs on the device and the training thread, inside the loader's ``__next__``,
        is in functions of the user's: a data set's ``__getitem__``, transforms, a ``collate_fn``. The functions are
        named, the costliest first.
    Why it costs time: What the training thread does for a batch it cannot do while it launches the step.
    How to fix it: Let worker processes do it (``num_workers``, for a data pipe a ``DataLoader`` around it). Make the
        costliest function cheaper: work on whole batches instead of samples, do once beforehand what is the same every
        time.
    How the saving is estimated: The step is replayed without nine tenths of that work, at the least half of it, at the
        most all.
    When it may be wrong: A profiler that records stacks slows Python, many small calls most of all. Operators inside a
        function count as its time only where Python calls were recorded.
    """

    meta = RuleMeta("DATA008", "collate-in-main", "The script's own functions make batches in the training thread")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.STACKS})
    refines = frozenset({"DATA001"})

    min_share: float = 0.05
    """Share of the step, as for any wait for the loader."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the idle time inside these functions with the step."""
        sites = loading_sites(facts.observation, facts.tree, facts.claim(Category.DATA_WAIT))
        claims = SpanSet.union_all(site.spans for site in sites)
        share = facts.share(claims)
        if share < self.min_share:
            return Clear("idle in functions of the script that the loader calls", share, self.min_share, Unit.SHARE)
        costly = sites[:MOST_SITES]
        return facts.finding(
            claims=claims,
            fix=Fix(
                "Let worker processes run these functions, and make the costliest cheaper",
                what_if=WithoutHostWork(claims),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("idle in functions that the loader calls", claims),
                *(facts.time_per_step(site.label, site.spans) for site in costly),
            ),
            locations=tuple(dict.fromkeys(location for site in costly for location in site.locations)),
            caveats=("Recording stacks slows Python, so without the profiler this takes less.",),
        )
