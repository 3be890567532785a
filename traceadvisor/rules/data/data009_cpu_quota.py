from __future__ import annotations

from dataclasses import replace

from traceadvisor.analysis.data.worker_curve import NO_GAIN_SHARE
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import wait_share
from traceadvisor.rules.data.worker_proposal import loader_fix


@frozen
class CpuQuota(Rule):
    """The process has more loader workers or threads than CPU cores that it may use.

    What it finds: A CPU quota of the cgroup, or a CPU affinity, below the machine's cores, and more loader workers or
        threads per operator than granted cores, while the training loop waits for data or the scheduler throttled the
        processes. Workers that mostly wait do not count, nor workers without which loading would be slower: see
        DATA004.
    Why it costs time: ``os.cpu_count()``, and everything sized by it, ignores a quota. When the processes have used up
        the quota, the scheduler stops all of them until its next period, including the training thread.
    How to fix it: Set ``num_workers`` to the granted cores (``len(os.sched_getaffinity(0))`` and ``cpu.max`` of the
        cgroup), minus those that the training keeps busy. Limit threads with ``OMP_NUM_THREADS`` or
        ``torch.set_num_threads``. Or request more cores.
    How the saving is estimated: Upper limit: the data wait, and of the rest of the step the share in which the quota
        was used up.
    When it may be wrong: If a capture did not time the batches, workers may wait for storage, and need no core. If the
        quota is not the limit, fewer workers load fewer batches.
    """

    meta = RuleMeta("DATA009", "cpu-quota", "More loading processes than granted CPU cores")
    needs = frozenset({Input.STEPS, Input.SETTINGS})
    refines = frozenset({"DATA001", "DATA003", "DATA004"})
    claims = frozenset({Category.DATA_WAIT})
    also_saves = "time in which the scheduler stopped all processes"

    min_share: float = 0.05
    """Share of the step spent waiting for data, as for DATA001."""

    min_throttled_share: float = 0.1
    """Share of scheduler periods in which the quota was used up. Short peaks at startup stay below it."""

    def check(self, facts: Facts) -> Outcome:
        settings, loader = facts.settings, facts.settings.loader
        granted, cores = settings.cpu_quota, settings.cpu_count
        if cores is None or loader is None or loader.worker_count is None:
            return Skipped("The number of CPU cores or loader workers is unknown.")
        if granted is None or granted >= cores:
            return Skipped(f"No quota or affinity limits this process to fewer than the {cores} cores of the machine.")
        computing = (loader.worker_count + 1) * settings.ranks_on_host
        wanted = max(computing, (settings.torch_threads or 1) * settings.ranks_on_host)
        if wanted <= granted:
            return Clear("processes or threads that need a core", wanted, granted, Unit.COUNT)
        too_many = computing > granted and _too_many(facts, loader.worker_count)
        wait = facts.claim(Category.DATA_WAIT)
        throttled = facts.run.telemetry.processes.mean_throttled_share if facts.run.telemetry else None
        waits = too_many and wait_share(facts) >= self.min_share  # threads alone do not delay batches
        if not waits and (throttled or 0.0) < self.min_throttled_share:
            remark = "they do not slow each other down"
            return Clear("data wait", wait_share(facts), self.min_share, Unit.SHARE, remark)
        wait_ns = facts.per_step_ns(wait)
        rest_ns = facts.per_step_ns(facts.steps.typical_windows) - wait_ns
        return finding_of(
            facts,
            claims=wait,
            fix=_fix(facts, too_many_workers=too_many),
            evidence=(
                Evidence("cores of the machine", cores, Unit.COUNT),
                Evidence("granted cores", granted, Unit.COUNT),
                Evidence("loader workers and training processes", computing, Unit.COUNT),
                facts.known("threads per operator", settings.torch_threads, Unit.COUNT),
                facts.known("scheduler periods with used-up quota", throttled, Unit.SHARE),
                facts.time_per_step("data wait", wait),
            ),
            most_ns=wait_ns + (throttled or 0.0) * rest_ns,
            locations=facts.loader_locations if too_many else (),
        )


def _too_many(facts: Facts, workers: int) -> bool:
    """Whether fewer workers, as many as the training leaves cores, would load as fast."""
    curve, spare = facts.worker_curve, _spare_cores(facts)
    if workers <= spare or (curve and curve.cost.is_waiting):
        return False
    if curve is None or not curve.cost.is_split:
        return True
    return curve.at(spare).step_ns <= (1 + NO_GAIN_SHARE) * curve.at(workers).step_ns


def _spare_cores(facts: Facts) -> int:
    """The most workers worth starting. If their CPU time is unknown, it leaves the training thread a core."""
    curve = facts.worker_curve
    return curve.most_workers if curve and curve.cost.is_split else max(int(facts.run.cores or 0) - 1, 1)


def _fix(facts: Facts, *, too_many_workers: bool) -> Fix:
    spare, granted = _spare_cores(facts), int((facts.settings.cpu_quota or 1) / facts.settings.ranks_on_host)
    summary = "Match the number of {} to the granted cores, or request more cores"
    unknown = "the loading speed with fewer processes or more cores is unknown"
    if too_many_workers:
        fewer = loader_fix(facts, summary.format("workers"), {"num_workers": spare}, not_replayed=unknown)
        return replace(fewer, effort=Effort.SETTING, caveats=("Workers that wait for storage need no core.",))
    change = f"torch.set_num_threads({max(granted, 1)})"
    return Fix(summary.format("threads per operator"), change, not_replayed=unknown, effort=Effort.LINE)
