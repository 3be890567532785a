from __future__ import annotations

from traceadvisor.analysis.data.batch_cost import CostSource
from traceadvisor.analysis.data.worker_curve import Point
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import Limit, cost_evidence, loading_limit, wait_share
from traceadvisor.rules.data.worker_proposal import OTHER_NUMBERS, Proposal, core_caveats, loader_fix

ELSEWHERE = {
    Limit.CORES: "no CPU core is free for more than the current {workers} workers",
    Limit.STORAGE: "storage limits data loading",
    Limit.BURSTS: "the loader is fast enough on average, and late at times",
    Limit.HANDOVER: "the current {workers} workers make batches fast enough",
    Limit.SAMPLER: "the sampler limits data loading, and it runs in the training process",
    Limit.LOCK: "workers wait for a lock that one of them holds, and more workers would, too",
    Limit.THREADS: "threads of native libraries use the cores already",
    Limit.NOTHING: "more workers would not shorten the step",
}
"""Why the loop waits, if the number of workers is not the reason."""


@frozen
class WorkerCount(Rule):
    """The data loader has too few workers for the step, or more than it needs.

    What it finds: Too few workers: the training loop waits, and more would deliver batches faster. Too many: less than
        half of them would still hide the loading of a step twice as fast.
    Why it costs time: Too few: every step waits for its batch. Too many: each worker holds its own copy of the data and
        queues batches, which takes memory, and competes with the training thread for cores.
    How to fix it: Set the smallest number that leaves less than 2% of the step as wait, by a worker's measured CPU time
        and waiting time per batch and the rest of the step, with the limits of DATA002. Time to receive a ready batch
        is no wait. Workers that are late by less than the rest of the step varies are enough: identical runs differ by
        more, unless they lack cores. More prefetched batches do not help while the queue is empty.
    How the saving is estimated: Too few: the step is simulated with the proposed number of workers, as for DATA002. Too
        many: only memory is saved. If more would help only where no other program used the cores: at most what they
        save there.
    When it may be wrong: A disk or a server may answer more slowly to more workers. Other programs may use the same
        cores.
    """

    meta = RuleMeta("DATA003", "worker-count", "The data loader needs another number of workers")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.SETTINGS})
    refines = frozenset({"DATA001"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    spare_factor: float = 2.0
    """Multiple of the proposed number that counts as too many. The proposed number hides the loading of a step that is
    as many times as fast: other fixes may make it faster."""

    def check(self, facts: Facts) -> Outcome:
        workers = facts.run.worker_count
        if workers is None:
            return Skipped("The number of loader workers is unknown.")
        if workers == 0:
            return Skipped("The data loader has no workers: DATA002 checks that.")
        share = wait_share(facts)
        if share >= self.min_share:
            return self._too_few(facts, workers, share)
        return self._too_many(facts, workers, share)

    def _too_few(self, facts: Facts, workers: int, share: float) -> Outcome:
        limit = loading_limit(facts)
        if limit.kind is Limit.UNKNOWN:
            return Skipped(facts.unknown_without("It is unknown how long a worker takes for a batch", Option.CAPTURE))
        if limit.proposal is None:
            remark = ELSEWHERE.get(limit.kind, "").format(workers=workers) or None
            return Clear("data wait", share, self.min_share, Unit.SHARE, remark)
        proposed = limit.proposal
        claims = facts.claim(Category.DATA_WAIT)
        return _finding(facts, proposed.point, proposed.fix, claims=claims, proposal=proposed)

    def _too_many(self, facts: Facts, workers: int, share: float) -> Outcome:
        curve = facts.worker_curve
        remark = f"{workers} workers hide the loading"
        if curve is None or curve.cost.source is not CostSource.CLOCKS:
            remark = "how long a worker takes for a batch is unknown"
        elif loading_limit(facts).kind is not Limit.BURSTS:
            enough = curve.with_step(curve.loop.rest_ns / max(self.spare_factor, 1.0)).fewest()
            if enough.is_hidden and workers > self.spare_factor * enough.workers:
                summary = "Use fewer workers: they load batches as fast and take less memory"
                fix = loader_fix(facts, summary, {"num_workers": enough.workers})
                return _finding(facts, enough, fix)
        return Clear("data wait", share, self.min_share, Unit.SHARE, remark)


def _finding(
    facts: Facts, then: Point, fix: Fix, *, claims: SpanSet | None = None, proposal: Proposal | None = None
) -> Outcome:
    curve, alone_ns = facts.worker_curve, proposal.alone_ns if proposal else None
    return finding_of(
        facts,
        claims=claims,
        fix=fix,
        saving=proposal.saving if proposal else None,
        alone_ns=alone_ns,
        effort=Effort.SETTING,
        evidence=(
            facts.known("current workers", facts.run.worker_count, Unit.COUNT),
            Evidence("workers needed", then.workers, Unit.COUNT),
            Evidence("predicted share of the step spent waiting", then.wait_share, Unit.SHARE),
            *cost_evidence(facts),
            facts.known("CPU cores for training and workers", curve.loop.cores if curve else None, Unit.RATIO),
        ),
        locations=facts.loading_locations if claims else facts.loader_locations,
        caveats=core_caveats(facts, then.workers, alone_ns) if claims else (OTHER_NUMBERS,),
    )
