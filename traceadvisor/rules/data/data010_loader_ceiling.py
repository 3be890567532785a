from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import RAN_AHEAD, workers_keep_up

SECOND_RUN = (
    "Loading overlaps the step, so the rate of the data loader alone is unknown. To find out how much faster the "
    "model can get before loading is the limit, do two short runs. The first only iterates over the data loader; the "
    "second trains on the same batch repeatedly."
)


@frozen
class LoaderCeiling(Rule):
    """The data loader delivers fewer samples per second than the model could process.

    What it finds: The batch rates of the data loader alone and of the model alone. A capture shows both if the training
        process loads batches itself, because they take turns, or if the loop waits for workers, which then set the
        pace.
    Why it costs time: The slower of the two limits the run. Making the other one faster saves no time.
    How to fix it: Fix loading first if it is slower: other findings name the causes. Otherwise leave loading as it is.
    How the saving is estimated: Upper limit: the whole data wait. The findings that name the causes have the savings.
    When it may be wrong: Loader and model share the CPU cores, so each alone is slightly faster. The rates count whole
        batches, including the last, smaller one of an epoch.
    """

    meta = RuleMeta("DATA010", "loader-ceiling", "The data loader is slower than the model")
    needs = frozenset({Input.STEPS, Input.SETTINGS})
    umbrella = True
    claims = frozenset({Category.DATA_WAIT})

    min_wait_share: float = 0.25
    """Share of the step in the data loader, from which the workers set the pace. On a busy machine, taking a ready
    batch takes up to a sixth of a short step."""

    def check(self, facts: Facts) -> Outcome:
        loader, timing = facts.settings.loader, facts.timing
        step_ns, loading_ns, fetches = timing.undisturbed_ns, timing.undisturbed_loader_ns, timing.fetches_per_step
        if timing.launch_ns:
            return Skipped(RAN_AHEAD)
        if loader is None or loader.worker_count is None or not step_ns or not loading_ns or not fetches:
            return Skipped("No undisturbed steps with a data loader were timed: capture a longer run.")
        if loader.worker_count and (loading_ns < self.min_wait_share * step_ns or workers_keep_up(facts)):
            return Skipped(SECOND_RUN)
        alone_ns = step_ns if loader.worker_count else loading_ns
        model_ns = max(step_ns - loading_ns, 1.0)
        ratio = model_ns / alone_ns
        if ratio >= 1:
            remark = "one worker can hide the loading" if loader.worker_count == 0 else None
            label = "batch rate of the data loader relative to the model"
            return Clear(label, ratio, 1.0, Unit.RATIO, remark, at_least=True)
        return finding_of(
            facts,
            claims=facts.claim(Category.DATA_WAIT),
            fix=Fix(
                "The data loader is slower than the model: fix loading first",
                not_replayed="this finding summarises the causes of slow loading, and each cause has its own fix",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("loading time per batch", alone_ns / fetches, Unit.NS),
                Evidence("model time per batch", model_ns / fetches, Unit.NS),
                Evidence("batch rate of the data loader relative to the model", ratio, Unit.RATIO),
            ),
            locations=facts.loader_locations,
        )
