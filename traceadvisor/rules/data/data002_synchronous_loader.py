"""DATA002: batches are loaded in the training process."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from traceadvisor.analysis.data.loading_sites import loading_sites
from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Work
from traceadvisor.replay.fixes.loader_workers import LoaderWorkers
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit

MOST_SITES = 3
"""Functions of the script that make batches, named as evidence."""


@dataclass(frozen=True, slots=True)
class SynchronousLoader(Rule):
    """The training process loads its own batches, and the device waits meanwhile.

    What it finds: A ``DataLoader`` without workers (``num_workers=0``, recorded as ``_SingleProcessDataLoaderIter``)
        whose loading is not hidden behind the device.
    Why it costs time: Reading, decoding and collating run on the training thread, one batch at a time; while they do,
        that thread launches nothing.
    How to fix it: Set ``num_workers`` above 0, so that batches are made while the device computes. The number proposed
        is the time to load a batch over the rest of the step, rounded up, and one to spare because workers deliver
        unevenly; no more than the cores that the run may use beside the training thread, where a capture knows them.
    How the saving is estimated: The step is replayed with that many workers, each taking as long for a batch as the
        training process did, which fill a queue of two batches each. Taking a batch and other host work cost what
        DATA001 says, and processes that are more than the cores share these.
    When it may be wrong: On a machine with one or two cores, workers compete with the training thread; a data set held
        in memory can be slower to send between processes than to index.
    """

    meta = RuleMeta("DATA002", "synchronous-loader", "Batches are loaded in the training process")
    needs = frozenset({Input.STEPS, Input.LOADER})
    refines = frozenset({"DATA001", "DATA008"})

    min_share: float = 0.05
    """Share of the step below which loading in the training process does no harm; as for DATA001."""

    def check(self, facts: Facts) -> Outcome:
        """Look at the kind of loader, then at what it costs."""
        loader = facts.needed(facts.observation.loader, Input.LOADER)
        loading = facts.needed(facts.overlaps[Work.DATA_LOADING], Input.LOADER)
        wait = facts.claim(Category.DATA_WAIT)
        share = facts.share(wait)
        if share < self.min_share or not loader.in_training_process:
            remark = None if loader.in_training_process else "the loader uses worker processes"
            return Clear("exposed data wait", share, self.min_share, Unit.SHARE, remark)
        rest_ns = max(facts.per_step_ns(facts.steps.kept_windows) - facts.per_step_ns(wait), 1.0)
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
                Evidence("loader", ", ".join(loader.kinds), Unit.TEXT),
                facts.time_per_step("waiting for a batch with nothing else going on", wait),
                Evidence("loading a batch", loading.total_ns, Unit.NS_PER_STEP),
                Evidence("the rest of the step", rest_ns, Unit.NS_PER_STEP),
                Evidence("share of the step spent waiting", share, Unit.SHARE),
                *(facts.time_per_step(site.label, site.spans) for site in sites),
            ),
            locations=facts.loader_locations,
            caveats=(
                "Workers and the training thread share the machine's cores: with few of them the gain is smaller.",
            ),
        )
