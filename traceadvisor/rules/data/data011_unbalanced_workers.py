"""DATA011: one loader worker does far more than its share."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.model.telemetry_window import WorkerWindow
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

WORKER = "pt_data_worker"
"""What torch calls the processes of its loaders, in versions that name them."""


@dataclass(frozen=True, slots=True)
class UnbalancedWorkers(Rule):
    """One of the loader's workers is busy all the time while the others have little to do, and the training waits.

    What it finds: The CPU time of the loader's workers over the undisturbed steps: one with several times the mean of
        the others, and busy enough to be what the training waits for.
    Why it costs time: Batches come in order, so the whole loader is as fast as its slowest worker.
    How to fix it: Deal the work out evenly: for an ``IterableDataset``, shards of equal size and as many as there are
        workers, or a multiple (``get_worker_info()`` says which are one's own); for files of very different size, cut
        the large ones.
    How the saving is estimated: The step is replayed with every batch ready when it is asked for, as DATA001 does: what
        a fix brings that goes all the way.
    When it may be wrong: A worker can be busy with something rare, such as the first file it opens. Only the busiest
        sixteen children are sampled. Of workers of several loaders, the busiest are taken for the training loader's, as
        many as it has.
    """

    meta = RuleMeta("DATA011", "unbalanced-workers", "One loader worker does far more than its share")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.HOST_TELEMETRY})
    refines = frozenset({"DATA001", "DATA003"})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    max_ratio: float = 2.5
    """Times the mean of the others, which even work brings to one: workers that took turns came to 1.24 at the most in
    recordings. From here on, even work would make the loader 1.4 times as fast with two workers, 1.8 with four."""

    min_cores: float = 0.5
    """Of the busiest worker; one with less to do is not what the training waits for."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the busiest worker with the mean of the others."""
        telemetry = facts.needed(facts.run.telemetry, Input.HOST_TELEMETRY)
        cores = _cores(telemetry.processes.workers)[: facts.run.worker_count]
        if len(cores) < 2:
            return Skipped("Fewer than two loader workers were sampled.")
        wait = facts.claim(Category.DATA_WAIT)
        if facts.share(wait) < self.min_share:
            return Clear("exposed data wait", facts.share(wait), self.min_share, Unit.SHARE)
        busiest, *others = cores
        mean = sum(others) / len(others)
        if busiest < self.max_ratio * mean:
            return Clear("busiest worker over the mean of the others", busiest / mean, self.max_ratio, Unit.RATIO)
        if busiest < self.min_cores:
            return Clear("cores that the busiest worker keeps busy", busiest, self.min_cores, Unit.RATIO)
        return facts.finding(
            claims=wait,
            fix=Fix(
                "Deal the data out evenly among the workers: shards of equal size, large files cut up",
                what_if=NoDataWait(),
            ),
            effort=Effort.LINE,
            evidence=(
                facts.known("busiest worker over the mean of the others", busiest / mean if mean else None, Unit.RATIO),
                Evidence("cores that the busiest keeps busy", busiest, Unit.RATIO),
                Evidence("mean of the others", mean, Unit.RATIO),
                Evidence("workers sampled", len(cores), Unit.COUNT),
                facts.time_per_step("waiting for a batch with nothing else going on", wait),
            ),
            locations=facts.loader_locations,
            caveats=("The busiest may be so for once, with the first file it opens.",),
        )


def _cores(workers: tuple[WorkerWindow, ...]) -> list[float]:
    """The cores that each loader worker keeps busy, most first; of children without torch's name where none has it."""
    named = [worker for worker in workers if worker.name == WORKER]
    cores = [worker.mean_cpu_cores for worker in named or workers if worker.mean_cpu_cores is not None]
    return sorted(cores, reverse=True)
