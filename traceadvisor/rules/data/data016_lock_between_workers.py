from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Skipped, Unit
from traceadvisor.model.saving import of_the_fix
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import MIN_LOCK_SHARE, Limit, cost_evidence, loading_limit, no_wait


@frozen
class LockBetweenWorkers(Rule):
    """Loader workers wait for a lock that one of them holds.

    What it finds: The share of the time of a batch in which a worker waits for a lock, by samples of its stack: of
        ``multiprocessing`` or ``threading``, of a file, or of a manager that answers one process at a time.
    Why it costs time: One worker at a time does the work behind the lock; more workers only wait longer.
    How to fix it: Give each worker its own file handle, connection or cache, opened in ``worker_init_fn`` or at its
        first sample. Hold the lock only while shared data change, not while a sample is read or decoded.
    How the saving is estimated: Upper limit: this share of the time of workers for which the loop waits, at most the
        whole wait.
    When it may be wrong: The lock may protect a device that answers one request at a time anyway.
    """

    meta = RuleMeta("DATA016", "lock-between-workers", "Loader workers wait for each other")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.SETTINGS})
    refines = frozenset({"DATA001", "DATA003", "DATA004", "DATA005", "DATA012"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    min_lock_share: float = MIN_LOCK_SHARE
    """Share of the time of a batch. Two workers of which each holds a lock for a fifth of a batch wait less."""

    def check(self, facts: Facts) -> Outcome:
        loading, curve = facts.loading, facts.worker_curve
        if loading is None or curve is None or facts.loader_time is None:
            return Skipped(facts.unknown_without("What loader workers wait for is unknown", Option.CAPTURE))
        if passed := no_wait(facts, self.min_share):
            return passed
        wait, locked, label = (
            facts.claim(Category.DATA_WAIT),
            curve.cost.lock_share,
            "share of a batch waiting for a lock",
        )
        if locked < self.min_lock_share or loading_limit(facts).kind is not Limit.LOCK:
            return Clear(label, locked, self.min_lock_share, Unit.SHARE)
        why = "how much of the work behind the lock may run in parallel is unknown"
        return finding_of(
            facts,
            claims=wait,
            fix=Fix("Give each worker its own handle, or hold the lock for less", not_replayed=why),
            saving=Estimate.bound(min(locked * loading.step_ns, loading.wait_ns), of_the_fix(why)),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence(label, locked, Unit.SHARE),
                facts.known("current workers", loading.workers, Unit.COUNT),
                facts.time_per_step("data wait", wait),
                *cost_evidence(facts),
            ),
            locations=facts.loading_locations,
            caveats=("More workers do not help: they wait for the same lock.",),
        )
