from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Skipped, Unit
from traceadvisor.rules.base import Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.epoch_starts import epoch_starts
from traceadvisor.rules.data.loading_limit import RAN_AHEAD, loader_fix


@frozen
class WorkerRestart(Rule):
    """Each epoch stops the loader workers and starts new ones, and the training loop waits for their first batch.

    What it finds: The time to start an epoch, for all epochs except the first. This is the time in the data loader's
        ``__iter__``, which starts the workers, the extra time of the first ``__next__``, and the last call of the epoch
        before, which stops the workers. It is divided by the number of steps in an epoch. The rule covers only loaders
        that do not keep their workers (``persistent_workers=False``).
    Why it costs time: Each worker is a new process. It may import modules, open files and fill caches again. The queue
        is empty until the first batch is ready.
    How to fix it: ``DataLoader(..., persistent_workers=True)`` keeps the workers, and the state of their data set,
        between epochs.
    How the saving is estimated: Upper limit, from the step times of the run: the share of the training time in epoch
        starts, applied to the training time per step. The first 20 steps of an epoch may be longer because of the
        start. What they take longer than later ones, or than the fastest tenth if epochs are that short, counts too, up
        to the time of the start itself. The first batch of an epoch takes time in any case.
    When it may be wrong: Kept workers hold their memory between epochs, also during validation. The training process
        may change the data set between epochs, for example its seed or the length of samples. Kept workers do not see
        this change.
    """

    meta = RuleMeta("DATA007", "worker-restart", "Loader workers are restarted in each epoch")
    needs = frozenset({Input.SETTINGS})
    also_saves = "starts of epochs, and the steps that follow, in steps that were not recorded"

    min_share: float = 0.01
    """Share of the training time. The fix is one argument, so even a small share is worth it. Less is noise."""

    def check(self, facts: Facts) -> Outcome:
        loader, timing = facts.needed(facts.settings.loader, Input.SETTINGS), facts.timing
        if not loader.worker_count:
            return Skipped("The data loader has no workers, or their number is unknown.")
        starts = epoch_starts(facts.run.steps)
        if timing.launch_ns:
            return Skipped(RAN_AHEAD)
        if starts is None or not timing.undisturbed_ns:
            return Skipped("The start of a second epoch was not captured: capture a longer run.")
        training_ns = max(starts.training_step_ns, starts.per_step_ns)
        share = starts.per_step_ns / training_ns
        if loader.persistent_workers or share < self.min_share:
            remark = "workers are kept between epochs" if loader.persistent_workers else None
            return Clear("share of training time in epoch starts", share, self.min_share, Unit.SHARE, remark)
        return finding_of(
            facts,
            fix=loader_fix(
                facts,
                "Keep the workers between epochs",
                {"num_workers": loader.worker_count, "persistent_workers": True},
                not_replayed="epochs start outside the simulated steps",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("share of training time in epoch starts", share, Unit.SHARE),
                Evidence("time to start an epoch, spread over its steps", starts.per_step_ns, Unit.NS_PER_STEP),
                Evidence("training time per step, epoch starts included", training_ns, Unit.NS_PER_STEP),
                Evidence("time to start the workers", starts.start_ns, Unit.NS),
                Evidence("extra time of the first batch", starts.first_batch_ns, Unit.NS),
                facts.known("time to stop the workers", starts.end_ns or None, Unit.NS),
                facts.known("extra time of the steps that follow, at most", starts.settling_ns or None, Unit.NS),
                Evidence("steps per epoch", starts.steps_per_epoch, Unit.COUNT),
                Evidence("measured epoch starts, without the first", starts.count, Unit.COUNT),
            ),
            most_share=min(starts.most_per_step_ns / training_ns, 1.0),
            whole_ns=training_ns,
            locations=facts.loader_locations,
            caveats=("Kept workers do not see changes to the data set between epochs.",),
        )
