"""DATA009: more processes load than the CPU quota has cores for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.rules.base import Rule

_WHY_A_BOUND = "how many batches fewer processes, or more cores, would make in time is not known"


@dataclass(frozen=True, slots=True)
class CpuQuota(Rule):
    """The process may use fewer cores than the machine has, and its workers or threads were counted by the machine.

    What it finds
        A CPU quota of the control group, or an affinity, below the number of the machine's cores, in a run with more
        loader workers, or more threads per operator, than it grants; and that it hurts: the training waits for data, or
        the scheduler held the processes back.

    Why it costs time
        ``os.cpu_count()`` and what is sized by it know nothing of a quota. Processes that want more than it grants are
        stopped, all of them, until the scheduler's next period begins; the training thread among them.

    How to fix it
        Size ``num_workers`` by the cores that are granted (``len(os.sched_getaffinity(0))`` and ``cpu.max`` of the
        control group), one left for the training thread; limit threads with ``OMP_NUM_THREADS`` or
        ``torch.set_num_threads``. Or have more cores granted.

    How the saving is estimated
        As a bound: between nothing and the exposed wait for data, or the share of the step in which the quota was used
        up, whichever is longer.

    When it may be wrong
        Workers that wait for storage need no core. Fewer workers make fewer batches where the quota is not what limits
        them.
    """

    meta: ClassVar = RuleMeta(
        id="DATA009",
        name="cpu-quota",
        title="More processes load than cores are granted",
        needs=frozenset({Input.STEPS, Input.SETTINGS}),
        refines=frozenset({"DATA001", "DATA003", "DATA004"}),
    )

    min_share: float = 0.05
    """Share of the step spent waiting for data, as for DATA001."""

    min_throttled_share: float = 0.1
    """Share of the scheduler's periods in which the quota was used up; short peaks of start-up stay below."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare what computes with what is granted, then look whether it hurts."""
        settings = facts.settings
        granted, cores = settings.cpu_quota, settings.cpu_count
        if cores is None or not settings.loader or settings.loader.worker_count is None:
            return Skipped("The number of cores or of loader workers is not known.")
        if granted is None or granted >= cores:
            return Skipped(f"Neither quota nor affinity limits this process to fewer than the machine's {cores} cores.")
        computing = (settings.loader.worker_count + 1) * settings.ranks_on_host
        threads = (settings.torch_threads or 1) * settings.ranks_on_host
        wanted = max(computing, threads)
        if wanted <= granted:
            return Clear("processes or threads that want a core", wanted, granted, Unit.COUNT)
        wait = facts.claim(Category.DATA_WAIT)
        throttled = facts.telemetry.processes.mean_throttled_share if facts.telemetry else None
        waits = computing > granted and facts.share(wait) >= self.min_share  # threads alone make no batch late
        if not waits and (throttled or 0.0) < self.min_throttled_share:
            remark = "they do not get in one another's way"
            return Clear("exposed data wait", facts.share(wait), self.min_share, Unit.SHARE, remark)
        step_ns = facts.per_step_ns(facts.steps.kept_windows)
        figures = (
            ("cores of the machine", cores, Unit.COUNT),
            ("cores granted", granted, Unit.COUNT),
            ("loader workers and training processes", computing, Unit.COUNT),
            ("threads of an operator", settings.torch_threads, Unit.COUNT),
            ("scheduler periods in which the quota was used up", throttled, Unit.SHARE),
            ("waiting for a batch with nothing else going on", facts.per_step_ns(wait), Unit.NS_PER_STEP),
        )
        return Finding(
            rule=self.meta,
            claims=wait,
            saving=facts.bound(max(facts.per_step_ns(wait), step_ns * (throttled or 0.0)), _WHY_A_BOUND),
            confidence=facts.confidence(),
            effort=Effort.SETTING,
            evidence=tuple(Evidence(label, value, unit) for label, value, unit in figures if value is not None),
            fix=_fix(facts, settings.loader.worker_count, too_many_workers=computing > granted),
            locations=(location,) if (location := facts.loader_location) else (),
            caveats=("Workers that wait for storage need no core.",),
        )


def _fix(facts: Facts, workers: int, *, too_many_workers: bool) -> Fix:
    spare = facts.spare_cores or 1
    if too_many_workers and workers > spare:
        change = f"DataLoader(..., num_workers={workers}) -> DataLoader(..., num_workers={spare})"
        return Fix("Size the workers by the cores that are granted, or have more granted", change=change)
    granted = int((facts.settings.cpu_quota or 1) / facts.settings.ranks_on_host)
    change = f"torch.set_num_threads({max(granted, 1)})"
    return Fix("Size the threads of operators by the cores that are granted, or have more granted", change=change)
