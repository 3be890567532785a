"""DATA007: the loader's workers are started anew for each epoch."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit
from traceadvisor.rules.data.epoch_starts import epoch_starts


@dataclass(frozen=True, slots=True)
class WorkerRestart(Rule):
    """Each epoch ends the loader's workers and starts new ones, and the training waits for their first batch.

    What it finds: The time it takes to begin an epoch after the first: in the loader's ``__iter__``, which starts the
        processes, and in the first ``__next__`` beyond what a batch usually takes; spread over the steps of an epoch.
        Only for loaders with workers that are not kept (``persistent_workers=False``).
    Why it costs time: Each worker is a process that begins from nothing: it may import, open files and fill caches
        again, and the queue is empty until the first batch is done.
    How to fix it: ``DataLoader(..., persistent_workers=True)`` keeps workers, and what their data set holds, from epoch
        to epoch.
    How the saving is estimated: As a bound, from the run's own step times: between nothing and the share of the
        training time that it takes, as a part of the step. The first batch of an epoch has to be made in any case.
    When it may be wrong: Kept workers hold their memory between epochs, also while validation runs. A data set that is
        changed in the training process between epochs (a new seed, a new length of sample) does not reach workers that
        are kept.
    """

    meta = RuleMeta("DATA007", "worker-restart", "Loader workers are started anew for each epoch")
    needs = frozenset({Input.SETTINGS})

    min_share: float = 0.01
    """Share of the training time: the fix is one word, so little is worth it, but what is below is noise."""

    def check(self, facts: Facts) -> Outcome:
        """Spread the time to begin an epoch over its steps."""
        loader, step_ns = facts.needed(facts.settings.loader, Input.SETTINGS), facts.run.timing.undisturbed_ns
        if not loader.worker_count:
            return Skipped("The loader has no workers, or how many is not known.")
        starts = epoch_starts(facts.run.steps)
        if starts is None or not step_ns:
            return Skipped("No second epoch was seen beginning: let a capture run into it.")
        share = starts.per_step_ns / (step_ns + starts.per_step_ns)
        if loader.persistent_workers or share < self.min_share:
            remark = "workers are kept" if loader.persistent_workers else None
            return Clear("training time to begin epochs", share, self.min_share, Unit.SHARE, remark)
        return facts.finding(
            fix=Fix(
                "Keep the workers from epoch to epoch",
                change=f"DataLoader(..., num_workers={loader.worker_count}, persistent_workers=True)",
                not_replayed="epochs begin outside the steps that are replayed",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("beginning an epoch, over its steps", starts.per_step_ns, Unit.NS_PER_STEP),
                Evidence("starting the workers", starts.start_ns, Unit.NS),
                Evidence("the first batch, beyond what one usually takes", starts.first_batch_ns, Unit.NS),
                Evidence("steps of an epoch", starts.steps_per_epoch, Unit.COUNT),
                Evidence("epochs begun, the first apart", starts.count, Unit.COUNT),
            ),
            most_share=share,
            locations=facts.loader_locations,
            caveats=("What the training process changes of the data set between epochs does not reach kept workers.",),
        )
