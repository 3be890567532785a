"""DATA003: the loader has too few workers, or more than it needs."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Work
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

TOO_FEW_CORES = "fewer cores are free than it takes workers to hide the loading, so a part of the wait stays"


@dataclass(frozen=True, slots=True)
class WorkerCount(Rule):
    """The loader's workers are too few for the step, or more than it needs.

    What it finds: A loader with workers whose number does not fit: the training loop still waits although cores are
        free for more, or fewer workers would make the batches as fast as the step uses them.
    Why it costs time: Too few: every step waits for the next batch. Too many: each holds its own copy of what it loads
        and queues batches ahead, which costs memory and competes with the training thread for cores.
    How to fix it: Set the smallest number that hides the loading: the time one worker takes for the batches of a step
        over the rest of the step, rounded up, and one to spare because workers deliver unevenly. It is capped by the
        cores that the process may use.
    How the saving is estimated: Too few: the step is replayed with every batch ready when it is asked for, as DATA001
        does. A bound, between nothing and the exposed wait, where cores are free for some of the workers needed only.
        Too many: nothing; what is saved is memory.
    When it may be wrong: While the loop waits, workers are taken to be busy all the time; with slow storage or a slow
        network they are not, and more of them may help further. The number of cores says nothing of who else uses them.
    """

    meta = RuleMeta("DATA003", "worker-count", "The number of loader workers does not fit")
    needs = frozenset({Input.STEPS, Input.LOADER, Input.SETTINGS})
    refines = frozenset({"DATA001"})

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    busy_cores: float = 0.8
    """Cores the workers keep busy together from which their CPU time tells how long loading takes; workers that mostly
    sleep wait for storage or a network, and how many of them are needed cannot be told from outside."""

    spare_factor: float = 2.0
    """How many times the needed number counts as too many; less is a fair reserve."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the number set with the number needed."""
        workers = facts.run.worker_count
        if workers is None:
            return Skipped("The number of loader workers is not known.")
        if workers == 0:
            return Skipped("The loader has no workers; DATA002 says what that costs and how many to start with.")
        wait = facts.claim(Category.DATA_WAIT)
        share = facts.share(wait)
        is_waiting = share >= self.min_share
        busy = workers if is_waiting else facts.run.loading_cores
        if busy is None:
            remark = "how busy its workers are is not known"
            return Clear("exposed data wait", share, self.min_share, Unit.SHARE, remark)
        enough = _enough(facts, busy)
        allowed = facts.run.spare_cores
        number = enough if allowed is None else min(enough, allowed)
        if is_waiting and number > workers:
            fix = Fix(
                "Start as many workers as hide the loading",
                _change(workers, number),
                what_if=NoDataWait() if number == enough else None,
                not_replayed=None if number == enough else TOO_FEW_CORES,
            )
        elif not is_waiting and busy and busy >= self.busy_cores and workers > self.spare_factor * enough:
            fix = Fix("Fewer workers make the batches as fast and hold less memory", _change(workers, enough))
        else:
            remark = f"{workers} workers hide the loading"
            if is_waiting:
                remark = f"no core is free for more than the {workers} workers there are"
            return Clear("exposed data wait", share, self.min_share, Unit.SHARE, remark)
        load_ns = busy * facts.per_step_ns(facts.steps.kept_windows)
        return facts.finding(
            claims=wait if is_waiting else SpanSet.empty(),
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                Evidence("workers set", workers, Unit.COUNT),
                Evidence("workers needed, one to spare", enough, Unit.COUNT),
                Evidence("worker time for the batches of a step", load_ns, Unit.NS_PER_STEP),
                facts.known("cores free for workers", allowed, Unit.COUNT),
            ),
            locations=facts.loader_locations,
            caveats=("Workers that wait for storage take longer than their computing tells.",),
        )


def _enough(facts: Facts, busy: float) -> int:
    """The smallest number of workers that hides the loading, one to spare.

    Args:
        facts: of the recording.
        busy: cores that making the batches of a step keeps busy for the length of a step.
    """
    step_ns = facts.per_step_ns(facts.steps.kept_windows)
    loading = facts.needed(facts.overlaps[Work.DATA_LOADING], Input.LOADER)
    return ceil(busy * step_ns / max(step_ns - loading.exposed_ns, 1.0)) + 1


def _change(now: int, then: int) -> str:
    return f"DataLoader(..., num_workers={now}) -> DataLoader(..., num_workers={then})"
