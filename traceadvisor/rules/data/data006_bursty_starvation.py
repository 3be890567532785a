"""DATA006: some steps wait long for the loader, most not at all."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import numpy as np

from traceadvisor.facts import Facts
from traceadvisor.model.arrays import Mask
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import (
    Clear,
    Effort,
    Estimate,
    Evidence,
    Finding,
    Fix,
    Input,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.model.run import LoaderSettings
from traceadvisor.rules.base import Rule
from traceadvisor.rules.data.loader_bursts import LoaderTurns, loader_turns

_WHY_A_BOUND = "the waits are those of the whole run, of which few steps were recorded"


DEFAULT_PREFETCH = 2
"""Of ``DataLoader`` with workers."""


@dataclass(frozen=True, slots=True)
class BurstyStarvation(Rule):
    """On the whole the loader keeps up, but now and then its queue runs empty and the training waits long.

    What it finds
        The times in the loader of all undisturbed steps, beyond what fetching a batch usually takes, over turns of the
        loader's workers so that their taking turns does not count. Few turns in which steps wait for a good part of
        their own length, and nearly all waiting in those few: a queue that is too short for an uneven source.

    Why it costs time
        A queue of ``num_workers x prefetch_factor`` batches bridges a pause of as many steps. Where a batch takes
        longer than that (a new file is opened, a large sample decoded, a remote shard fetched), the training waits for
        the rest.

    How to fix it
        Raise ``prefetch_factor`` so that the queue bridges the longest pause; it costs the host's memory. Better, make
        the source even: shards of equal size, opened ahead; large samples cut down beforehand.

    How the saving is estimated
        As a bound, from the run's own step times: between nothing and the share of the training time that goes into
        those waits, as a part of the step. The median step has none of them.

    When it may be wrong
        Pauses that come from elsewhere (another job on the same storage) do not go away with a longer queue. The steps
        with a wait may be those that were not recorded. A recording without a capture is not judged: in a handful of
        steps, and without the number of workers, a pause looks like the workers' taking turns.
    """

    meta: ClassVar = RuleMeta(
        id="DATA006",
        name="bursty-starvation",
        title="The loader's queue runs empty now and then",
        needs=frozenset({Input.SETTINGS}),
        refines=frozenset({"DATA001", "DATA003"}),
    )

    min_share: float = 0.03
    """Share of the training time in such waits; it is averaged over the whole run, so less than for a single cause in
    a handful of steps is still no noise."""

    long_wait_share: float = 0.5
    """A wait is long from this share of the rest of the step: what a busy core or a slow read adds stays below."""

    max_turns_share: float = 0.3
    """Share of turns; where more of them wait, the loader is too slow altogether, which is DATA001's and DATA003's."""

    min_concentration_share: float = 0.8
    """Share of all waiting that falls into the long waits."""

    least_turns: int = 10
    """Turns of the workers from which some can be told from all."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Look for few turns that hold nearly all waiting."""
        loader = facts.settings.loader
        assert loader is not None  # noqa: S101  # Input.SETTINGS
        if not loader.worker_count:
            return Skipped("The loader has no workers and so no queue, or how many is not known.")
        turns = loader_turns(facts.run.steps if facts.run else (), loader.worker_count)
        if turns is None or turns.wait_ns.size < self.least_turns:
            return Skipped(f"Fewer than {self.least_turns} undisturbed turns of the workers: train for more steps.")
        return self._judge(facts, turns, loader)

    def _judge(self, facts: Facts, turns: LoaderTurns, loader: LoaderSettings) -> Finding | Clear:
        long = turns.wait_ns >= self.long_wait_share * turns.step_ns
        waited_ns = float(turns.wait_ns[long].sum()) / turns.wait_ns.size
        share = waited_ns / (turns.step_ns + float(turns.wait_ns.mean()))
        if share < self.min_share:
            return Clear("training time in long waits for the loader", share, self.min_share, Unit.SHARE)
        long_share = float(long.mean())
        if long_share > self.max_turns_share:
            remark = "the loader is too slow altogether, not now and then"
            return Clear("turns of the workers with long waits", long_share, self.max_turns_share, Unit.SHARE, remark)
        concentration = float(turns.wait_ns[long].sum() / turns.wait_ns.sum())
        if concentration < self.min_concentration_share:
            remark = "short waits make up a good part"
            return Clear("turns of the workers with long waits", long_share, self.max_turns_share, Unit.SHARE, remark)
        return _finding(facts, turns, loader, long=long, share=share)


def _finding(facts: Facts, turns: LoaderTurns, loader: LoaderSettings, *, long: Mask, share: float) -> Finding:
    workers, prefetch = loader.worker_count or 1, loader.prefetch_factor or DEFAULT_PREFETCH
    pause_ns = float(turns.wait_ns.max()) * workers
    step_ns = facts.step_ns or turns.step_ns
    needed = prefetch + ceil(pause_ns / max(turns.step_ns, 1.0) / workers)
    return Finding(
        rule=BurstyStarvation.meta,
        claims=facts.claim(Category.DATA_WAIT),
        saving=Estimate.bound(share * step_ns, _WHY_A_BOUND),
        confidence=facts.confidence(),
        effort=Effort.SETTING,
        evidence=(
            Evidence("training time in long waits for the loader", share, Unit.SHARE),
            Evidence("the same over all steps", float(turns.wait_ns[long].sum()) / long.size, Unit.NS_PER_STEP),
            Evidence("turns of the workers with such waits", float(np.mean(long)), Unit.SHARE),
            Evidence("longest wait", pause_ns, Unit.NS),
            Evidence("rest of the step, median", turns.step_ns, Unit.NS_PER_STEP),
            Evidence("batches that the queue holds", workers * prefetch, Unit.COUNT),
        ),
        fix=Fix(
            "Let the queue bridge the pauses, or make the source even",
            change=f"DataLoader(..., prefetch_factor={prefetch}) -> DataLoader(..., prefetch_factor={needed})",
        ),
        locations=(location,) if (location := facts.loader_location) else (),
        caveats=("A longer queue holds more batches in the host's memory.",),
    )
