from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.telemetry_window import WorkerWindow
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import not_workers, wait_share

WORKER = "pt_data_worker"
"""Name that torch gives to loader workers, in versions that name them."""


@frozen
class UnbalancedWorkers(Rule):
    """One loader worker is always busy while the others are mostly idle, and the training loop waits.

    What it finds: If a capture timed the batches: one worker takes several times as long per batch as the others.
        Otherwise, over the undisturbed steps: one uses several times the mean CPU time of the others, and is busy
        enough to make the loop wait.
    Why it costs time: Batches arrive in order, so the loader is as fast as its slowest worker.
    How to fix it: Distribute the work evenly. For an ``IterableDataset``, use shards of equal size, and give each
        worker the same number (``get_worker_info()`` identifies the worker). Split large files.
    How the saving is estimated: The step is simulated with every batch ready, as for DATA001: the saving of a complete
        fix.
    When it may be wrong: A worker may be busy for a short time only, for example with its first file. Only the busiest
        sixteen child processes are sampled. With several data loaders, the busiest workers are assumed to belong to the
        training loader.
    """

    meta = RuleMeta("DATA011", "unbalanced-workers", "One loader worker does much more work than the others")
    needs = frozenset({Input.STEPS, Input.LOADER})
    refines = frozenset({"DATA001", "DATA003", "DATA004", "DATA012"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    max_ratio: float = 2.5
    """Busiest worker relative to the mean of the others. Workers that took turns reached 1.24 at most in recordings.
    From 2.5 on, even work would make the loader 1.4 times as fast with two workers, 1.8 times with four."""

    min_cores: float = 0.5
    """CPU cores used by the busiest worker. With less, the training loop does not wait for this worker."""

    def check(self, facts: Facts) -> Outcome:  # noqa: PLR0911  # one answer per figure
        if wait_share(facts) >= self.min_share and (remark := not_workers(facts)):
            return Clear("data wait", wait_share(facts), self.min_share, Unit.SHARE, remark)
        if facts.worker_curve and len(facts.worker_curve.cost.by_worker_ns) > 1:
            return self._by_time(facts, facts.worker_curve.cost.by_worker_ns)
        telemetry = facts.needed(facts.run.telemetry, Input.HOST_TELEMETRY)
        cores = _cores(telemetry.processes.workers)[: facts.run.worker_count]
        if len(cores) < 2:
            return Skipped("Fewer than two loader workers were sampled.")
        if wait_share(facts) < self.min_share:
            return Clear("data wait", wait_share(facts), self.min_share, Unit.SHARE)
        busiest, *others = cores
        mean = sum(others) / len(others)
        if busiest < self.max_ratio * mean:
            return Clear("busiest worker relative to the others", busiest / mean, self.max_ratio, Unit.RATIO)
        if busiest < self.min_cores:
            return Clear("CPU cores used by the busiest worker", busiest, self.min_cores, Unit.RATIO)
        return _finding(
            facts,
            facts.known("busiest worker relative to the others", busiest / mean if mean else None, Unit.RATIO),
            Evidence("CPU cores used by the busiest worker", busiest, Unit.RATIO),
            Evidence("mean CPU cores used by the other workers", mean, Unit.RATIO),
            Evidence("sampled workers", len(cores), Unit.COUNT),
        )

    def _by_time(self, facts: Facts, times_ns: tuple[float, ...]) -> Outcome:
        """Compare the slowest worker with the mean of the others, by the median time per batch."""
        share = wait_share(facts)
        if share < self.min_share:
            return Clear("data wait", share, self.min_share, Unit.SHARE)
        slowest, *others = times_ns
        mean_ns = max(sum(others) / len(others), 1.0)
        if slowest < self.max_ratio * mean_ns:
            return Clear("slowest worker relative to the others", slowest / mean_ns, self.max_ratio, Unit.RATIO)
        return _finding(
            facts,
            Evidence("slowest worker relative to the others", slowest / mean_ns, Unit.RATIO),
            Evidence("time per batch of the slowest worker", slowest, Unit.NS),
            Evidence("mean time per batch of the other workers", mean_ns, Unit.NS),
        )


def _finding(facts: Facts, *figures: Evidence | None) -> Outcome:
    wait = facts.claim(Category.DATA_WAIT)
    return finding_of(
        facts,
        claims=wait,
        fix=Fix(
            "Distribute the data evenly: use shards of equal size, and split large files",
            what_if=NoDataWait(),
        ),
        effort=Effort.LINE,
        evidence=(*figures, facts.time_per_step("data wait", wait)),
        locations=facts.loading_locations,
        caveats=("The busiest worker may be busy for a short time only, for example with its first file.",),
    )


def _cores(workers: tuple[WorkerWindow, ...]) -> list[float]:
    """Return the CPU cores used by each loader worker, largest first; all children count if torch named no worker."""
    named = [worker for worker in workers if worker.name == WORKER]
    cores = [worker.mean_cpu_cores for worker in named or workers if worker.mean_cpu_cores is not None]
    return sorted(cores, reverse=True)
