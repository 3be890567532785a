from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen

LEAST_CPU_SHARE = 0.05
"""Share of the CPU time of all processes of the training, from which one of them computes, though it waits for cores.
Others, such as a server of TensorBoard, use less."""


@frozen
class TooManyThreads(Rule):
    """Operators on the CPU use more threads than there are CPU cores.

    What it finds: A training on the CPU whose operators use more threads (``torch.get_num_threads()``, which a capture
        reads) than the process may use cores. The threads of all ranks on the machine count.
    Why it costs time: An operator ends when its last thread ends, and the others wait for those without a core.
    How to fix it: Call ``torch.set_num_threads`` with the number of granted cores, divided by the number of ranks on
        the machine and of other processes that compute beside them, such as those that collect experience: in each of
        them. Or set ``OMP_NUM_THREADS``, before the start.
    How the saving is estimated: Upper limit: the time in operators, times the share of threads without a core.
    When it may be wrong: Some operators use one thread only. More ranks than cores wait for each other with one thread
        each, too: that needs fewer ranks, and is no finding. With hyperthreading, a core runs two threads at once.
    """

    meta = RuleMeta("IDLE011", "too-many-threads", "Operators use more threads than there are CPU cores")
    needs = frozenset({Input.STEPS})
    refines = frozenset({"DATA009"})
    claims = frozenset({Category.OPTIMIZER, Category.BACKWARD, Category.FORWARD})

    min_ratio: Annotated[float, Meta(gt=1, lt=1e300)] = 1.5
    """Threads relative to cores. PyTorch's own default is 1 or, with hyperthreading, a half."""

    min_busy_share: float = 0.5
    """Share of CPU time in use, of the granted cores or of the machine. With less, threads do not wait for cores."""

    def check(self, facts: Facts) -> Outcome:
        settings = facts.settings
        if facts.observation.has_device:
            return Skipped("The GPU runs the operators.")
        # The quota may be that of one rank or of all ranks together.
        quota = settings.cpu_quota if settings.ranks_on_host == 1 else None
        granted = min((cores for cores in (settings.cpu_count, quota) if cores), default=None)
        if settings.torch_threads is None or granted is None:
            return Skipped(facts.unknown_without("The number of threads or CPU cores is unknown", Option.CAPTURE))
        threads, ranks = settings.torch_threads, settings.ranks_on_host
        ratio = threads * ranks / granted
        if ratio < self.min_ratio:
            return Clear("threads per CPU core", ratio, self.min_ratio, Unit.RATIO)
        telemetry, beside = facts.run.telemetry, _computing_beside(facts)
        fitting = max(int(granted / (ranks + beside)), 1)
        if threads <= fitting:
            return Clear("threads per operator", threads, fitting, Unit.COUNT, "each rank has one thread already")
        shares = (telemetry.processes.granted_cpu_share, telemetry.node.mean_cpu_share) if telemetry else ()
        busy = max((share for share in shares if share is not None), default=None)
        if busy is not None and busy < self.min_busy_share:
            return Clear("CPU time in use", busy, self.min_busy_share, Unit.SHARE, "the threads do not wait for cores")
        inside = facts.claim(*self.claims)
        return finding_of(
            facts,
            claims=inside,
            fix=Fix(
                "Use as many threads as there are cores, shared by all processes that compute: in each of them"
                if beside
                else "Use as many threads as there are cores",
                f"torch.set_num_threads({fitting})",
                not_replayed="how long operators take with fewer threads is unknown",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("threads per operator", threads, Unit.COUNT),
                Evidence("ranks on the machine", ranks, Unit.COUNT) if ranks > 1 else None,
                Evidence("other processes of the training that compute", beside, Unit.COUNT) if beside else None,
                Evidence("CPU cores for them", granted, Unit.COUNT),
                facts.time_per_step("time in operators", inside),
                facts.known("CPU time in use", busy, Unit.SHARE),
            ),
            most_ns=facts.per_step_ns(inside) * (1 - fitting / threads),
            caveats=("Try fewer threads, too: small operators are often fastest with one.",),
        )


def _computing_beside(facts: Facts) -> int:
    """Children of the training processes that compute, without loader workers, which have one thread."""
    telemetry, loader = facts.run.telemetry, facts.settings.loader
    if telemetry is None or not (whole := telemetry.processes.mean_cpu_cores):
        return 0
    busy = sum((child.mean_cpu_cores or 0.0) >= LEAST_CPU_SHARE * whole for child in telemetry.processes.workers)
    return max(busy - (loader.worker_count or 0 if loader else 0), 0)
