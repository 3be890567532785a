from __future__ import annotations

from traceadvisor.model.findings import Effort, Evidence, Fix, Unit
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, frozen
from traceadvisor.rules.data.loading_limit import Limit, cost_evidence, loading_limit, usual_time


@frozen
class DataLoaderWait(Rule):
    """The training loop waits for its next batch, and the GPU is idle meanwhile.

    What it finds: Time in which the training thread is inside the data loader's ``__next__`` and the GPU runs nothing.
        If no GPU was recorded, all time inside ``__next__`` counts. Loading that overlaps GPU operations does not
        count.
    Why it costs time: The data loader delivers batches more slowly than the training loop uses them. The GPU is idle
        until the next batch arrives.
    How to fix it: Deliver batches faster than the GPU uses them. Load in worker processes, and raise ``num_workers`` to
        the smallest number that hides the wait. Keep workers alive with ``persistent_workers=True``. Decode less data,
        or decode it before the training. If workers make batches fast enough, the training thread takes long to receive
        them: collate into a few large tensors instead of many small ones or Python objects.
    How the saving is estimated: The step is simulated with every batch ready when the loop requests it. Work that was
        hidden behind the wait becomes visible and does not count as saved. Taking a batch is expected to cost 0.7 ms.
        If the training process loaded its batches itself, its other CPU work is expected to take 1.07 times as long
        with workers. The low estimate uses 1.2 times, the high estimate 1.0 times.
    When it may be wrong: Starting and exporting a recording stalls the loop. Meanwhile, loader workers refill their
        queue, so the first steps afterwards wait less than usual. With few free CPU cores, more workers slow down the
        training thread.
    """

    meta = RuleMeta("DATA001", "dataloader-wait", "The training loop waits for the data loader")
    needs = frozenset({Input.STEPS, Input.LOADER})
    popular_fix = "More or faster data loading"
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step. With only a few recorded steps, a shorter wait is noise. The TensorBoard plugin uses the same
    threshold."""

    def check(self, facts: Facts) -> Outcome:
        wait = facts.claim(Category.DATA_WAIT)
        share, loading = facts.share(wait), facts.observation.loading & facts.steps.typical_marks
        fix = Fix(_summary(facts), what_if=NoDataWait())
        usual = usual_time(facts) if share >= self.min_share else None
        if share < self.min_share or usual:
            return facts.clear("data wait", share, self.min_share, Unit.SHARE, usual, fix=fix)
        return facts.finding(
            claims=wait,
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("data wait", wait),
                facts.time_per_step("total time in data loader", loading),
                Evidence("share of the step spent waiting", share, Unit.SHARE),
                *cost_evidence(facts),
            ),
            locations=facts.loading_locations,
            caveats=(
                "Use the smallest number that hides the wait: workers and the training thread share the CPU cores.",
            ),
        )


def _summary(facts: Facts) -> str:
    match loading_limit(facts).kind:
        case Limit.NOTHING if facts.run.worker_count == 0:
            return "Load a batch with less work: take its rows with one index from tensors, instead of one by one"
        case Limit.HANDOVER:
            return "Make batches faster to receive: a few large tensors instead of many small ones or Python objects"
        case Limit.CORES:
            return "Load batches with less CPU work per sample"
        case _:
            return "Load batches faster: use more loader workers, and keep them alive between epochs"
