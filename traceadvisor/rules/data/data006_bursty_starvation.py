"""DATA006: some steps wait long for the loader, most not at all."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit
from traceadvisor.rules.data.loader_bursts import loader_turns

DEFAULT_PREFETCH = 2
"""Of ``DataLoader`` with workers."""


@dataclass(frozen=True, slots=True)
class BurstyStarvation(Rule):
    """On the whole the loader keeps up, but now and then its queue runs empty and the training waits long.

    What it finds: The times in the loader of all undisturbed steps, beyond what fetching a batch usually takes, over
        turns of the loader's workers so that their taking turns does not count. Few turns in which steps wait for a
        good part of their own length, and nearly all waiting in those few: a queue that is too short for an uneven
        source.
    Why it costs time: A queue of ``num_workers x prefetch_factor`` batches bridges a pause of as many steps. Where a
        batch takes longer than that (a new file is opened, a large sample decoded, a remote shard fetched), the
        training waits for the rest.
    How to fix it: Raise ``prefetch_factor`` so that the queue bridges the longest pause; it costs the host's memory.
        Better, make the source even: shards of equal size, opened ahead; large samples cut down beforehand.
    How the saving is estimated: As a bound, from the run's own step times: between nothing and the share of the
        training time that goes into those waits, as a part of the step. The median step has none of them.
    When it may be wrong: Pauses that come from elsewhere (another job on the same storage) do not go away with a longer
        queue. The steps with a wait may be those that were not recorded. A recording without a capture is not judged:
        in a handful of steps, and without the number of workers, a pause looks like the workers' taking turns.
    """

    meta = RuleMeta("DATA006", "bursty-starvation", "The loader's queue runs empty now and then")
    needs = frozenset({Input.SETTINGS})
    refines = frozenset({"DATA001", "DATA003"})

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

    def check(self, facts: Facts) -> Outcome:
        """Look for few turns that hold nearly all waiting."""
        loader = facts.needed(facts.settings.loader, Input.SETTINGS)
        if not loader.worker_count:
            return Skipped("The loader has no workers and so no queue, or how many is not known.")
        turns = loader_turns(facts.run.steps, loader.worker_count)
        if turns is None or turns.wait_ns.size < self.least_turns:
            return Skipped(f"Fewer than {self.least_turns} undisturbed turns of the workers: train for more steps.")
        long = turns.wait_ns >= self.long_wait_share * turns.step_ns
        waited_ns = float(turns.wait_ns[long].sum()) / turns.wait_ns.size
        share = waited_ns / (turns.step_ns + float(turns.wait_ns.mean()))
        if share < self.min_share:
            return Clear("training time in long waits for the loader", share, self.min_share, Unit.SHARE)
        long_share = float(long.mean())
        too_many = long_share > self.max_turns_share
        if too_many or float(turns.wait_ns[long].sum() / turns.wait_ns.sum()) < self.min_concentration_share:
            remark = (
                "the loader is too slow altogether, not now and then" if too_many else "short waits make up a good part"
            )
            return Clear("turns of the workers with long waits", long_share, self.max_turns_share, Unit.SHARE, remark)
        pause_ns = float(turns.wait_ns.max()) * loader.worker_count
        prefetch = loader.prefetch_factor or DEFAULT_PREFETCH
        needed = prefetch + ceil(pause_ns / max(turns.step_ns, 1.0) / loader.worker_count)
        return facts.finding(
            claims=facts.claim(Category.DATA_WAIT),
            fix=Fix(
                "Let the queue bridge the pauses, or make the source even",
                change=f"DataLoader(..., prefetch_factor={prefetch}) -> DataLoader(..., prefetch_factor={needed})",
                not_replayed="the waits are those of the whole run, of which few steps were recorded",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("training time in long waits for the loader", share, Unit.SHARE),
                Evidence("the same over all steps", waited_ns, Unit.NS_PER_STEP),
                Evidence("turns of the workers with such waits", long_share, Unit.SHARE),
                Evidence("longest wait", pause_ns, Unit.NS),
                Evidence("rest of the step, median", turns.step_ns, Unit.NS_PER_STEP),
                Evidence("batches that the queue holds", loader.worker_count * prefetch, Unit.COUNT),
            ),
            most_share=share,
            locations=facts.loader_locations,
            caveats=("A longer queue holds more batches in the host's memory.",),
        )
