from __future__ import annotations

from dataclasses import replace

from traceadvisor.analysis.data.batch_cost import CostSource
from traceadvisor.analysis.data.loading import Loading
from traceadvisor.analysis.data.worker_curve import Point, WorkerCurve
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Method, Skipped, Unit
from traceadvisor.model.run import StepState
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import Limit, cost_evidence, loading_limit, usual_time
from traceadvisor.rules.data.worker_proposal import SLOWER_TRAINING, loader_fix
from traceadvisor.rules.torch_api import has_api

_QUEUED = "the loader is late at times only, which a longer queue bridges in the same order"


@frozen
class SlowBatchBlocks(Rule):
    """A slow batch keeps finished ones waiting, because batches are delivered in order.

    What it finds: Workers that are fast enough on average while the training loop waits for a slow batch. The measured
        batches are simulated twice: delivered in order, and as soon as any is ready.
    Why it costs time: While one worker makes a slow batch, the others fill their part of the queue and stop.
    How to fix it: Use ``DataLoader(..., in_order=False)`` (torch 2.6 and later), which delivers the first batch that is
        ready. Otherwise make samples of equal size, or prefetch more batches.
    How the saving is estimated: The difference between both simulations as a share of the simulated step, at most the
        measured wait. The longest batch of each worker does not count: a garbage collection, for example, comes once.
        The low estimate lets the training slow down by a tenth.
    When it may be wrong: The order of batches then depends on timing, so runs differ with the same seed. Slow samples
        come later than fast ones, which matters if they differ in content.
    """

    meta = RuleMeta("DATA018", "slow-batch-blocks", "A slow batch keeps finished ones waiting")
    needs = frozenset({Input.STEPS, Input.SETTINGS})
    refines = frozenset({"DATA001", "DATA003", "DATA006", "DATA012"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step that the change saves, as for a data wait."""

    least_part: float = 0.3
    """Share of the simulated wait that goes. With less, batches are mostly too slow in any order: see DATA003."""

    def check(self, facts: Facts) -> Outcome:
        loading, curve, loader = facts.loading, facts.worker_curve, facts.needed(facts.settings.loader, Input.SETTINGS)
        if loading is None or curve is None or curve.cost.source is not CostSource.CLOCKS or not loading.workers:
            return Skipped(facts.unknown_without("Times of batches in workers are unknown", Option.CAPTURE))
        label = "share of the step that batches in any order save"
        if loader.in_order is False:
            return Clear(label, 0.0, self.min_share, Unit.SHARE, "batches come in any order")
        if loader.in_order is None and not has_api(facts.settings.torch_version, "DataLoader(in_order=)"):
            return Skipped("This version of torch delivers batches in their order only.")
        now, then = _compared(curve, loading.workers)
        gained_ns = max(now.step_ns - then.step_ns, 0.0)
        most_share = _wait_share(facts, loading)
        share, part = min(gained_ns / now.step_ns, most_share), gained_ns / max(now.wait_ns, 1.0)
        is_bridged = loading_limit(facts).kind is Limit.BURSTS and curve.shortest_prefetch(loading.workers) is not None
        usual = usual_time(facts) or (_QUEUED if is_bridged else None)
        if share < self.min_share or part < self.least_part or usual:
            remark = usual or ("batches are too slow in any order" if share >= self.min_share else None)
            return Clear(label, share, self.min_share, Unit.SHARE, remark)
        arguments = {"num_workers": loading.workers, "in_order": False}
        step_ns = loading.step_ns
        low_share = min(max(gained_ns - SLOWER_TRAINING * loading.rest_ns, 0.0) / now.step_ns, share)
        return finding_of(
            facts,
            claims=facts.claim(Category.DATA_WAIT),
            fix=loader_fix(facts, "Take any batch that is ready, instead of the next in order", arguments),
            saving=Estimate(low_share * step_ns, share * step_ns, most_share * step_ns, Method.MODEL),
            effort=Effort.SETTING,
            evidence=(
                Evidence("simulated wait, in order", now.wait_ns, Unit.NS_PER_STEP),
                Evidence("simulated wait, in any order", then.wait_ns, Unit.NS_PER_STEP),
                Evidence("measured wait for batches", loading.wait_ns, Unit.NS_PER_STEP),
                Evidence("longest batch", float((curve.cost.cpu_ns + curve.cost.wait_ns).max()), Unit.NS),
                *cost_evidence(facts),
            ),
            locations=facts.loader_locations,
            caveats=("The order of batches then depends on timing: runs with the same seed differ.",),
        )


def _compared(curve: WorkerCurve, workers: int) -> tuple[Point, Point]:
    """Return the simulations in order and in any order, without what each worker may do once."""
    usual = replace(curve, cost=curve.cost.without_longest(workers))
    return usual.at(workers), usual.in_any_order().at(workers)


def _wait_share(facts: Facts, loading: Loading) -> float:
    """Return the share of the wait in the step: in the mean one, since most steps wait for no slow batch."""
    plain = [step for step in facts.run.steps if step.state is StepState.PLAIN]
    mean_share = sum(step.loader_ns for step in plain) / max(sum(step.duration_ns for step in plain), 1)
    return min(max(loading.wait_ns / max(loading.step_ns, 1.0), mean_share), 1.0)
