from __future__ import annotations

from traceadvisor.analysis.operators.call_sites import loading_sites
from traceadvisor.model.findings import Clear, Effort, Fix, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import Limit, loading_limit, stacks_only, wait_share

MOST_SITES = 5

IN_WORKERS = "Run these functions in worker processes, and make the most expensive one cheaper"

WITHOUT_WORKERS = (
    "If these functions give the same in each epoch, do their work once before the training. If their calls are short, "
    "make them process whole batches instead of single samples"
)
"""The fix where handing a batch over takes as long as making it."""


@frozen
class CollateInMain(Rule):
    """Functions of the training script load batches in the training thread while the GPU is idle.

    What it finds: Time in which the GPU runs nothing and the training thread runs user functions inside the data
        loader's ``__next__``: a data set's ``__getitem__``, transforms, a ``collate_fn``. The finding names the most
        expensive first.
    Why it costs time: While the training thread loads a batch, it launches no kernels.
    How to fix it: Run these functions in worker processes: set ``num_workers``, or wrap a data pipe in a
        ``DataLoader``. Make the most expensive function cheaper: process whole batches instead of samples, and compute
        constants once.
    How the saving is estimated: The step is simulated without 0.9 of this work (0.5 to all of it). Where
        workers save nothing, the report states this time and promises no saving.
    When it may be wrong: Recording call stacks slows down Python, mostly many small calls. Operators inside a function
        count towards its time only if Python calls were recorded.
    """

    meta = RuleMeta("DATA008", "collate-in-main", "User functions load batches in the training thread")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.STACKS})
    refines = frozenset({"DATA001"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step, as for any data wait."""

    def check(self, facts: Facts) -> Outcome:
        sites = loading_sites(facts.observation, facts.tree, facts.claim(Category.DATA_WAIT))
        claims = SpanSet.union_all(site.spans for site in sites)
        share = min(facts.share(claims), wait_share(facts))
        if share < self.min_share:
            return Clear("data wait in user functions", share, self.min_share, Unit.SHARE)
        if remark := stacks_only(facts):
            return Clear("data wait in user functions", share, self.min_share, Unit.SHARE, remark)
        costly, is_cheap = sites[:MOST_SITES], loading_limit(facts).kind is Limit.NOTHING
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                WITHOUT_WORKERS if is_cheap else IN_WORKERS,
                what_if=WithoutHostWork(claims),
                is_conditional=is_cheap,
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("data wait in user functions", claims),
                *facts.times_at(costly),
            ),
            locations=tuple(dict.fromkeys(location for site in costly for location in site.locations)),
            caveats=("These functions take less time without the profiler: recording call stacks slows down Python.",),
        )
