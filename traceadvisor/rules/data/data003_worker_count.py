"""DATA003: the loader has too few workers, or more than it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    Method,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.report import Work
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.data_wait import NoDataWait
from traceadvisor.rules.base import Rule

TOO_FEW_CORES = "fewer cores are free than it takes workers to hide the loading, so a part of the wait stays"


@dataclass(frozen=True, slots=True)
class _Need:
    """How many workers the step asks for."""

    workers: int
    """As set."""

    enough: int
    """The smallest number that hides the loading, one to spare."""

    allowed: int | None
    """Cores the workers may use beside the training thread; None where not known."""

    load_ns: float
    """One worker's time to make the batches of a step."""


@dataclass(frozen=True, slots=True)
class WorkerCount(Rule):
    """The loader's workers are too few for the step, or more than it needs.

    What it finds
        A loader with workers whose number does not fit: the training loop still waits although cores are free for
        more, or fewer workers would make the batches as fast as the step uses them.

    Why it costs time
        Too few: every step waits for the next batch. Too many: each holds its own copy of what it loads and queues
        batches ahead, which costs memory and competes with the training thread for cores.

    How to fix it
        Set the smallest number that hides the loading: the time one worker takes for the batches of a step over the
        rest of the step, rounded up, and one to spare because workers deliver unevenly. It is capped by the cores that
        the process may use.

    How the saving is estimated
        Too few: the step is replayed with every batch ready when it is asked for, as DATA001 does. A bound, between
        nothing and the exposed wait, where cores are free for some of the workers needed only, or the replay is not to
        be believed. Too many: nothing; what is saved is memory.

    When it may be wrong
        While the loop waits, workers are taken to be busy all the time; with slow storage or a slow network they are
        not, and more of them may help further. The number of cores says nothing of who else uses them.
    """

    meta: ClassVar = RuleMeta(
        id="DATA003",
        name="worker-count",
        title="The number of loader workers does not fit",
        needs=frozenset({Input.STEPS, Input.LOADER, Input.SETTINGS}),
        refines=frozenset({"DATA001"}),
    )

    min_share: float = 0.05
    """Share of the step spent waiting, as for DATA001."""

    busy_cores: float = 0.8
    """Cores the workers keep busy together from which their CPU time tells how long loading takes; workers that mostly
    sleep wait for storage or a network, and how many of them are needed cannot be told from outside."""

    spare_factor: float = 2.0
    """How many times the needed number counts as too many; less is a fair reserve."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the number set with the number needed."""
        settings = facts.settings.loader
        workers = settings.worker_count if settings else None
        if workers is None:
            return Skipped("The number of loader workers is not known.")
        if workers == 0:
            return Skipped("The loader has no workers; DATA002 says what that costs and how many to start with.")
        wait = facts.claim(Category.DATA_WAIT)
        share = facts.share(wait)
        need = _need(facts, workers, waiting=share >= self.min_share)
        if need is None:
            return Clear(
                "exposed data wait", share, self.min_share, Unit.SHARE, "how busy its workers are is not known"
            )
        if share >= self.min_share and need.enough > workers and (need.allowed is None or need.allowed > workers):
            return self._too_few(facts, need, wait)
        busy = facts.loading_cores
        if share < self.min_share and busy and busy >= self.busy_cores and workers > self.spare_factor * need.enough:
            return self._too_many(facts, need)
        return Clear("exposed data wait", share, self.min_share, Unit.SHARE, _remark(need, share >= self.min_share))

    def _too_few(self, facts: Facts, need: _Need, wait: SpanSet) -> Finding:
        number = need.enough if need.allowed is None else min(need.enough, need.allowed)
        fixes = (NoDataWait(),) if number == need.enough else ()
        wait_ns = facts.per_step_ns(wait)
        found = self._finding(
            facts,
            need,
            wait,
            facts.what_if(*fixes, most_ns=wait_ns) if fixes else facts.bound(wait_ns, TOO_FEW_CORES),
            Fix(
                "Start as many workers as hide the loading",
                change=f"DataLoader(..., num_workers={need.workers}) -> DataLoader(..., num_workers={number})",
            ),
        )
        return replace(found, what_ifs=fixes)

    def _too_many(self, facts: Facts, need: _Need) -> Finding:
        return self._finding(
            facts,
            need,
            SpanSet.empty(),
            Estimate(0.0, 0.0, 0.0, Method.MODEL),
            Fix(
                "Fewer workers make the batches as fast and hold less memory",
                change=f"DataLoader(..., num_workers={need.workers}) -> DataLoader(..., num_workers={need.enough})",
            ),
        )

    def _finding(self, facts: Facts, need: _Need, claims: SpanSet, saving: Estimate, fix: Fix) -> Finding:
        location = facts.loader_location
        return Finding(
            rule=self.meta,
            claims=claims,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.SETTING,
            evidence=(
                Evidence("workers set", need.workers, Unit.COUNT),
                Evidence("workers needed, one to spare", need.enough, Unit.COUNT),
                Evidence("worker time for the batches of a step", need.load_ns, Unit.NS_PER_STEP),
                *((Evidence("cores free for workers", need.allowed, Unit.COUNT),) if need.allowed is not None else ()),
            ),
            fix=fix,
            locations=(location,) if location else (),
            caveats=("Workers that wait for storage take longer than their computing tells.",),
        )


def _need(facts: Facts, workers: int, *, waiting: bool) -> _Need | None:
    """The number needed; None where nothing tells how long a batch takes to make."""
    step_ns = facts.per_step_ns(facts.steps.kept_windows)
    loading = facts.overlaps[Work.DATA_LOADING]
    wait_ns = loading.exposed_ns if loading else 0.0
    rest_ns = max(step_ns - wait_ns, 1.0)
    if waiting:
        load_ns = workers * step_ns
    else:
        busy_cores = facts.loading_cores
        if busy_cores is None:
            return None
        load_ns = busy_cores * step_ns
    return _Need(workers, ceil(load_ns / rest_ns) + 1, facts.spare_cores, load_ns)


def _remark(need: _Need, waiting: bool) -> str:  # noqa: FBT001  # two sentences of one thought
    if not waiting:
        return f"{need.workers} workers hide the loading"
    return f"no core is free for more than the {need.workers} workers there are"
