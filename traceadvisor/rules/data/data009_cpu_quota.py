"""DATA009: more processes load than the CPU quota has cores for."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class CpuQuota(Rule):
    """The process may use fewer cores than the machine has, and its workers or threads were counted by the machine.

    What it finds: A CPU quota of the control group, or an affinity, below the number of the machine's cores, in a run
        with more loader workers, or more threads per operator, than it grants; and that it hurts: the training waits
        for data, or the scheduler held the processes back.
    Why it costs time: ``os.cpu_count()`` and what is sized by it know nothing of a quota. Processes that want more than
        it grants are stopped, all of them, until the scheduler's next period begins; the training thread among them.
    How to fix it: Size ``num_workers`` by the cores that are granted (``len(os.sched_getaffinity(0))`` and ``cpu.max``
        of the control group), one left for the training thread; limit threads with ``OMP_NUM_THREADS`` or
        ``torch.set_num_threads``. Or have more cores granted.
    How the saving is estimated: As a bound: between nothing and the exposed wait for data, or the share of the step in
        which the quota was used up, whichever is longer.
    When it may be wrong: Workers that wait for storage need no core. Fewer workers make fewer batches where the quota
        is not what limits them.
    """

    meta = RuleMeta("DATA009", "cpu-quota", "More processes load than cores are granted")
    needs = frozenset({Input.STEPS, Input.SETTINGS})
    refines = frozenset({"DATA001", "DATA003", "DATA004"})

    min_share: float = 0.05
    """Share of the step spent waiting for data, as for DATA001."""

    min_throttled_share: float = 0.1
    """Share of the scheduler's periods in which the quota was used up; short peaks of start-up stay below."""

    def check(self, facts: Facts) -> Outcome:
        """Compare what computes with what is granted, then look whether it hurts."""
        settings, loader = facts.settings, facts.settings.loader
        granted, cores = settings.cpu_quota, settings.cpu_count
        if cores is None or loader is None or loader.worker_count is None:
            return Skipped("The number of cores or of loader workers is not known.")
        if granted is None or granted >= cores:
            return Skipped(f"Neither quota nor affinity limits this process to fewer than the machine's {cores} cores.")
        computing = (loader.worker_count + 1) * settings.ranks_on_host
        wanted = max(computing, (settings.torch_threads or 1) * settings.ranks_on_host)
        if wanted <= granted:
            return Clear("processes or threads that want a core", wanted, granted, Unit.COUNT)
        wait = facts.claim(Category.DATA_WAIT)
        throttled = facts.run.telemetry.processes.mean_throttled_share if facts.run.telemetry else None
        waits = computing > granted and facts.share(wait) >= self.min_share  # threads alone make no batch late
        if not waits and (throttled or 0.0) < self.min_throttled_share:
            remark = "they do not get in one another's way"
            return Clear("exposed data wait", facts.share(wait), self.min_share, Unit.SHARE, remark)
        throttled_ns = facts.per_step_ns(facts.steps.kept_windows) * (throttled or 0.0)
        return facts.finding(
            claims=wait,
            fix=_fix(facts, loader.worker_count, too_many_workers=computing > granted),
            effort=Effort.SETTING,
            evidence=(
                Evidence("cores of the machine", cores, Unit.COUNT),
                Evidence("cores granted", granted, Unit.COUNT),
                Evidence("loader workers and training processes", computing, Unit.COUNT),
                facts.known("threads of an operator", settings.torch_threads, Unit.COUNT),
                facts.known("scheduler periods in which the quota was used up", throttled, Unit.SHARE),
                facts.time_per_step("waiting for a batch with nothing else going on", wait),
            ),
            most_ns=max(facts.per_step_ns(wait), throttled_ns),
            locations=facts.loader_locations,
            caveats=("Workers that wait for storage need no core.",),
        )


def _fix(facts: Facts, workers: int, *, too_many_workers: bool) -> Fix:
    spare, granted = facts.run.spare_cores or 1, int((facts.settings.cpu_quota or 1) / facts.settings.ranks_on_host)
    what, change = "threads of operators", f"torch.set_num_threads({max(granted, 1)})"
    if too_many_workers and workers > spare:
        what, change = "workers", f"DataLoader(..., num_workers={workers}) -> DataLoader(..., num_workers={spare})"
    return Fix(
        f"Size the {what} by the cores that are granted, or have more granted",
        change,
        not_replayed="how many batches fewer processes, or more cores, would make in time is not known",
    )
