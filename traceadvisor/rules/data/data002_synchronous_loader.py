from __future__ import annotations

from traceadvisor.analysis.operators.call_sites import loading_sites
from traceadvisor.model.findings import Clear, Effort, Evidence, Unit
from traceadvisor.model.report import Work
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import WITHOUT_WORKERS, cost_evidence, loading_limit, wait_share
from traceadvisor.rules.data.worker_proposal import core_caveats


@frozen
class SynchronousLoader(Rule):
    """The training process loads its own batches, and the GPU is idle meanwhile.

    What it finds: A ``DataLoader`` without workers (``num_workers=0``, recorded as ``_SingleProcessDataLoaderIter``)
        whose loading does not overlap GPU operations. Or one that a thread of the script iterates (such as a
        ``BackgroundGenerator``) while the training thread waits for its queue: both threads share one Python
        interpreter.
    Why it costs time: The training thread reads, decodes and collates one batch at a time, and launches no kernels
        meanwhile.
    How to fix it: Set ``num_workers`` above 0, so that workers load batches while the GPU computes. The proposed number
        is the smallest that leaves less than 2% of the step as wait, by each batch's CPU time and waiting time, which a
        capture measures. CPU time needs a free core per worker. Waiting for storage or a network needs none, but more
        than 16 workers are not proposed for it: larger or asynchronous reads need less memory. If cores are free, the
        number allows for operators that several threads shared.
    How the saving is estimated: The step is simulated with the proposed number of workers. Each takes as long for a
        batch as the training process did, and prefetches as the loader's settings say; processes that compute share the
        cores. Taking a batch and other CPU work cost the same as for DATA001. If the simulation is not trusted, the
        saving of a capture follows from the number of workers, the measured batches and the rest of the step. The low
        estimate lets all processes compute at the same time. Workers do not save the time of the sampler, nor of taking
        a batch: 0.7 ms, and twice as long where other programs use all cores. There, a fix that removes work comes
        first.
    When it may be wrong: Without a capture it is unknown whether loading computes or waits, and how many cores there
        are; then enough free cores are assumed. For a data set in memory, sending batches between processes can take
        longer than indexing.
    """

    meta = RuleMeta("DATA002", "synchronous-loader", "Batches are loaded in the training process")
    needs = frozenset({Input.STEPS, Input.LOADER})
    refines = frozenset({"DATA001", "DATA008"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step. Below it, loading in the training process does no harm. As for DATA001."""

    def check(self, facts: Facts) -> Outcome:
        loader = facts.needed(facts.observation.loader, Input.LOADER)
        loading = facts.needed(facts.overlaps[Work.DATA_LOADING], Input.LOADER)
        wait = facts.claim(Category.DATA_WAIT)
        share = wait_share(facts)
        from_thread = bool(facts.loader_time and facts.loader_time.is_from_thread) and facts.run.worker_count == 0
        if share < self.min_share or not (loader.in_training_process or from_thread):
            remark = None if loader.in_training_process or from_thread else "the loader uses worker processes"
            return Clear("data wait", share, self.min_share, Unit.SHARE, remark)
        limit = loading_limit(facts)
        if limit.proposal is None:
            return Clear("data wait", share, self.min_share, Unit.SHARE, WITHOUT_WORKERS.get(limit.kind))
        then = limit.proposal.point
        rest_ns = max(facts.per_step_ns(facts.steps.typical_windows) - facts.per_step_ns(wait), 1.0)
        return finding_of(
            facts,
            claims=wait,
            fix=limit.proposal.fix,
            saving=limit.proposal.saving,
            alone_ns=limit.proposal.alone_ns,
            effort=Effort.SETTING,
            evidence=(
                Evidence("data loader type", ", ".join(loader.kinds), Unit.TEXT),
                facts.time_per_step("data wait", wait),
                Evidence("time in data loader", loading.total_ns, Unit.NS_PER_STEP),
                Evidence("rest of the step", rest_ns, Unit.NS_PER_STEP),
                Evidence("share of the step spent waiting", share, Unit.SHARE),
                Evidence("batches taken by", "a thread of the script", Unit.TEXT) if from_thread else None,
                Evidence("workers needed", then.workers, Unit.COUNT),
                Evidence("predicted share of the step spent waiting", then.wait_share, Unit.SHARE),
                *cost_evidence(facts),
                *facts.times_at(loading_sites(facts.observation, facts.tree, wait), most=3),
            ),
            locations=facts.loading_locations,
            caveats=core_caveats(facts, then.workers, limit.proposal.alone_ns),
        )
