"""DATA007: the loader's workers are started anew for each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.findings import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Rule
from traceadvisor.rules.data.epoch_starts import epoch_starts

_WHY_A_BOUND = "epochs begin outside the steps that are replayed"


@dataclass(frozen=True, slots=True)
class WorkerRestart(Rule):
    """Each epoch ends the loader's workers and starts new ones, and the training waits for their first batch.

    What it finds
        The time it takes to begin an epoch after the first: in the loader's ``__iter__``, which starts the processes,
        and in the first ``__next__`` beyond what a batch usually takes; spread over the steps of an epoch. Only for
        loaders with workers that are not kept (``persistent_workers=False``).

    Why it costs time
        Each worker is a process that begins from nothing: it may import, open files and fill caches again, and the
        queue is empty until the first batch is done.

    How to fix it
        ``DataLoader(..., persistent_workers=True)`` keeps workers, and what their data set holds, from epoch to epoch.

    How the saving is estimated
        As a bound, from the run's own step times: between nothing and the share of the training time that it takes, as
        a part of the step. The first batch of an epoch has to be made in any case.

    When it may be wrong
        Kept workers hold their memory between epochs, also while validation runs. A data set that is changed in the
        training process between epochs (a new seed, a new length of sample) does not reach workers that are kept.
    """

    meta: ClassVar = RuleMeta(
        id="DATA007",
        name="worker-restart",
        title="Loader workers are started anew for each epoch",
        needs=frozenset({Input.SETTINGS}),
    )

    min_share: float = 0.01
    """Share of the training time: the fix is one word, so little is worth it, but what is below is noise."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Spread the time to begin an epoch over its steps."""
        loader, step_ns = facts.settings.loader, facts.timing.undisturbed_ns
        assert loader is not None  # noqa: S101  # Input.SETTINGS
        if not loader.worker_count:
            return Skipped("The loader has no workers, or how many is not known.")
        starts = epoch_starts(facts.run.steps if facts.run else ())
        if starts is None or not step_ns:
            return Skipped("No second epoch was seen beginning: let a capture run into it.")
        share = starts.per_step_ns / (step_ns + starts.per_step_ns)
        if loader.persistent_workers or share < self.min_share:
            remark = "workers are kept" if loader.persistent_workers else None
            return Clear("training time to begin epochs", share, self.min_share, Unit.SHARE, remark)
        return Finding(
            rule=self.meta,
            claims=SpanSet.empty(),
            saving=Estimate.bound(share * step_ns, _WHY_A_BOUND),
            confidence=facts.confidence(),
            effort=Effort.SETTING,
            evidence=(
                Evidence("beginning an epoch, over its steps", starts.per_step_ns, Unit.NS_PER_STEP),
                Evidence("starting the workers", starts.start_ns, Unit.NS),
                Evidence("the first batch, beyond what one usually takes", starts.first_batch_ns, Unit.NS),
                Evidence("steps of an epoch", starts.steps_per_epoch, Unit.COUNT),
                Evidence("epochs begun, the first apart", starts.count, Unit.COUNT),
            ),
            fix=Fix(
                "Keep the workers from epoch to epoch",
                change=f"DataLoader(..., num_workers={loader.worker_count}, persistent_workers=True)",
            ),
            locations=(location,) if (location := facts.loader_location) else (),
            caveats=("What the training process changes of the data set between epochs does not reach kept workers.",),
        )
