from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Work
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

TOO_FEW_CORES = "too few CPU cores are free for the needed workers, so part of the wait remains"


@dataclass(frozen=True, slots=True)
class WorkerCount(Rule):
    """The data loader has too few workers for the step, or more than it needs.

    What it finds: A data loader with the wrong number of workers. Too few: the training loop waits although CPU cores
        are free for more workers. Too many: fewer workers would still load batches as fast as the step uses them.
    Why it costs time: Too few: every step waits for its batch. Too many: each worker holds its own copy of the data
        that it loads, and queues batches. This takes memory, and the workers compete with the training thread for
        cores.
    How to fix it: Set the smallest number that hides the loading. This is the worker time for the batches of one step,
        divided by the rest of the step, rounded up. One spare worker is added, because workers deliver unevenly. The
        number is at most the CPU cores that the process may use.
    How the saving is estimated: Too few: the step is simulated with every batch ready when the loop requests it, as for
        DATA001. If cores are free for only some of the needed workers, the saving is an upper limit: the exposed data
        wait. Too many: only memory is saved, no time.
    When it may be wrong: While the loop waits, we assume that all workers are busy. With slow storage or a slow network
        they are not, and still more workers may help. Other programs may use the same cores.
    """

    meta = RuleMeta("DATA003", "worker-count", "The number of loader workers is too low or too high")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.SETTINGS})
    refines = frozenset({"DATA001"})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    busy_cores: float = 0.8
    """CPU cores that all workers together keep busy. From this value on, their CPU time shows how long loading takes.
    With less, workers mostly wait for storage or a network, and the needed number of workers is unknown."""

    spare_factor: float = 2.0
    """Multiple of the needed number that counts as too many. Less is a reasonable reserve."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the current number of workers with the needed number."""
        workers = facts.run.worker_count
        if workers is None:
            return Skipped("The number of loader workers is unknown.")
        if workers == 0:
            return Skipped("The data loader has no workers: DATA002 shows the cost and proposes a number.")
        wait = facts.claim(Category.DATA_WAIT)
        share = facts.share(wait)
        is_waiting = share >= self.min_share
        busy = workers if is_waiting else facts.run.loading_cores
        if busy is None:
            remark = "the CPU time of the workers is unknown"
            return Clear("exposed data wait", share, self.min_share, Unit.SHARE, remark)
        enough = _enough(facts, busy)
        allowed = facts.run.spare_cores
        number = enough if allowed is None else min(enough, allowed)
        if is_waiting and number > workers:
            fix = Fix(
                "Use enough workers to hide the loading",
                _change(workers, number),
                what_if=NoDataWait() if number == enough else None,
                not_replayed=None if number == enough else TOO_FEW_CORES,
            )
        elif not is_waiting and busy and busy >= self.busy_cores and workers > self.spare_factor * enough:
            fix = Fix("Use fewer workers: they load batches as fast and take less memory", _change(workers, enough))
        else:
            remark = f"{workers} workers hide the loading"
            if is_waiting:
                remark = f"no CPU core is free for more than the current {workers} workers"
            return Clear("exposed data wait", share, self.min_share, Unit.SHARE, remark)
        load_ns = busy * facts.per_step_ns(facts.steps.typical_windows)
        return facts.finding(
            claims=wait if is_waiting else SpanSet.empty(),
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                Evidence("current workers", workers, Unit.COUNT),
                Evidence("workers needed, including one spare", enough, Unit.COUNT),
                Evidence("worker time for the batches of one step", load_ns, Unit.NS_PER_STEP),
                facts.known("CPU cores free for workers", allowed, Unit.COUNT),
            ),
            locations=facts.loader_locations,
            caveats=("Workers that wait for storage take longer than their CPU time shows.",),
        )


def _enough(facts: Facts, busy: float) -> int:
    """Return the smallest number of workers that hides the loading, including one spare.

    Args:
        facts: the recording.
        busy: CPU cores that loading keeps busy during a step.
    """
    step_ns = facts.per_step_ns(facts.steps.typical_windows)
    loading = facts.needed(facts.overlaps[Work.DATA_LOADING], Input.LOADER)
    return ceil(busy * step_ns / max(step_ns - loading.exposed_ns, 1.0)) + 1


def _change(now: int, then: int) -> str:
    return f"DataLoader(..., num_workers={now}) -> DataLoader(..., num_workers={then})"
