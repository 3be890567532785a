"""DATA001: the device waits for the data loader."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Work
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class DataLoaderWait(Rule):
    """The training loop waits for its next batch and nothing else goes on.

    What it finds: Time in which the training thread is inside the data loader's ``__next__`` and, where a device was
        recorded, the device runs nothing. Loading that is hidden behind the device does not count.
    Why it costs time: Batches are made more slowly than they are used, so the device stands still until the next one
        arrives.
    How to fix it: Make batches faster than the device uses them: load in worker processes, raise ``num_workers`` to the
        smallest number that hides the wait, keep workers alive with ``persistent_workers=True``, decode less or decode
        earlier.
    How the saving is estimated: The step is replayed with every batch ready when it is asked for; what was hidden
        behind the wait comes forward and is not counted as saved. Expected: taking a batch costs 0.7 ms and, where the
        training process made its batches itself, other host work takes 1.07 times as long once others make them. At the
        least 1.2 times, at the most no longer.
    When it may be wrong: Starting and exporting a recording stalls the loop, and a loader with workers refills its
        queue meanwhile: the first steps afterwards wait less than the run does. With few free cores, more workers slow
        the training thread.
    """

    meta = RuleMeta("DATA001", "dataloader-wait", "The training loop waits for the data loader")
    needs = frozenset({Input.STEPS, Input.LOADER})
    popular_fix = "More or faster data loading"

    min_share: float = 0.05
    """Share of the step below which a wait is noise over a handful of steps; the TensorBoard plugin's threshold."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the exposed wait with the step."""
        wait = facts.claim(Category.DATA_WAIT)
        share, loading = facts.share(wait), facts.needed(facts.overlaps[Work.DATA_LOADING], Input.LOADER)
        fix = Fix(
            "Make batches faster than they are used: more loader workers, kept alive between epochs",
            change="DataLoader(..., num_workers=N, persistent_workers=True)",
            what_if=NoDataWait(),
        )
        if share < self.min_share:
            return facts.clear("exposed data wait", share, self.min_share, Unit.SHARE, fix=fix)
        return facts.finding(
            claims=wait,
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("waiting for a batch with nothing else going on", wait),
                Evidence("inside the loader altogether", loading.total_ns, Unit.NS_PER_STEP),
                Evidence("share of the step spent waiting", share, Unit.SHARE),
            ),
            locations=facts.loader_locations,
            caveats=(
                "Workers and the training thread share the machine's cores: "
                "use the smallest number that hides the wait.",
            ),
        )
