from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from traceadvisor.analysis.data.loading_sites import loading_sites
from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Work
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit

MOST_SITES = 3
"""Maximum number of user functions that are named as evidence."""


@dataclass(frozen=True, slots=True)
class SynchronousLoader(Rule):
    """The training process loads its own batches, and the GPU is idle meanwhile.

    What it finds: A ``DataLoader`` without workers (``num_workers=0``, recorded as ``_SingleProcessDataLoaderIter``)
        whose loading does not overlap GPU operations.
    Why it costs time: The training thread reads, decodes and collates one batch at a time. Meanwhile it launches no
        kernels.
    How to fix it: Set ``num_workers`` above 0, so that workers load batches while the GPU computes. The proposed number
        is the time to load a batch divided by the rest of the step, rounded up. One spare worker is added, because
        workers deliver unevenly. If a capture recorded the CPU cores, the number is at most the cores left beside the
        training thread.
    How the saving is estimated: The step is simulated with this number of workers. Each worker takes as long for a
        batch as the training process did, and fills a queue of two batches. Taking a batch and other CPU work cost the
        same as for DATA001. If there are more processes than cores, they share the cores.
    When it may be wrong: On a machine with one or two cores, workers compete with the training thread. For a data set
        in memory, sending batches between processes can take longer than indexing.
    """

    meta = RuleMeta("DATA002", "synchronous-loader", "Batches are loaded in the training process")
    needs = frozenset({Input.STEPS, Input.LOADER})
    refines = frozenset({"DATA001", "DATA008"})

    min_share: float = 0.05
    """Share of the step. Below it, loading in the training process does no harm. Same value as for DATA001."""

    def check(self, facts: Facts) -> Outcome:
        """Check the type of the data loader, then its exposed time."""
        loader = facts.needed(facts.observation.loader, Input.LOADER)
        loading = facts.needed(facts.overlaps[Work.DATA_LOADING], Input.LOADER)
        wait = facts.claim(Category.DATA_WAIT)
        share = facts.share(wait)
        if share < self.min_share or not loader.in_training_process:
            remark = None if loader.in_training_process else "the loader uses worker processes"
            return Clear("exposed data wait", share, self.min_share, Unit.SHARE, remark)
        rest_ns = max(facts.per_step_ns(facts.steps.typical_windows) - facts.per_step_ns(wait), 1.0)
        needed = ceil(loading.total_ns / rest_ns) + 1
        workers = needed if facts.run.spare_cores is None else min(needed, facts.run.spare_cores)
        sites = loading_sites(facts.observation, facts.tree, wait)[:MOST_SITES]
        return facts.finding(
            claims=wait,
            fix=Fix(
                "Load batches in worker processes while the step runs",
                f"DataLoader(..., num_workers=0) -> DataLoader(..., num_workers={workers}, persistent_workers=True)",
                what_if=LoaderWorkers(workers, facts.run.cores),
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("data loader type", ", ".join(loader.kinds), Unit.TEXT),
                facts.time_per_step("exposed data wait", wait),
                Evidence("time in data loader", loading.total_ns, Unit.NS_PER_STEP),
                Evidence("rest of the step", rest_ns, Unit.NS_PER_STEP),
                Evidence("share of the step spent waiting", share, Unit.SHARE),
                *(facts.time_per_step(site.label, site.spans) for site in sites),
            ),
            locations=facts.loader_locations,
            caveats=("With few CPU cores the gain is smaller: workers and the training thread share them.",),
        )
