from __future__ import annotations

from dataclasses import replace
from math import ceil
from statistics import median

from traceadvisor.analysis.data.batch_cost import CostSource
from traceadvisor.analysis.data.loading import DEFAULT_PREFETCH
from traceadvisor.analysis.data.worker_curve import LONGEST_PREFETCH
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loader_bursts import BurstLimits, Bursts, loader_turns, long_waits, why_not
from traceadvisor.rules.data.loading_limit import usually_fast
from traceadvisor.rules.data.worker_proposal import loader_fix

AHEAD = (
    "Some batches take far longer than others: do their work once before the training, or in a worker process, which "
    "does it while other steps run"
)


@frozen
class BurstyStarvation(Rule):
    """The data loader is usually fast enough, but some batches come late.

    What it finds: Time in the data loader over all undisturbed steps, beyond the usual time to take a batch, averaged
        over turns in which every worker delivers one batch. A few turns contain nearly all of it: the queue is too
        short for an uneven data source. A single wait that holds most of it is an event, and not found. A loader
        without workers has no queue: then turns are single steps.
    Why it costs time: A queue of ``num_workers x prefetch_factor`` batches bridges a pause of that many steps. If a
        worker opens a new file, decodes a large sample or fetches a remote shard for longer, the loop waits for the
        rest.
    How to fix it: Smooth the data source: use shards of equal size, open them ahead of time, and cut large samples
        beforehand. Or raise ``prefetch_factor`` until the queue bridges the longest pause. This takes CPU memory, and
        needs workers that are faster than the loop on average. Without workers: do the long work once before the
        training, or let a worker do it while other steps run.
    How the saving is estimated: Upper limit: the share of the training time in these waits, from the step times of the
        run, applied to the step. The median step contains no such wait. If a capture timed the batches, the proposed
        ``prefetch_factor`` is the smallest with which a simulation of them waits for less than 2% of the step.
    When it may be wrong: A longer queue does not remove pauses with another cause, such as another job on the same
        storage. The rule needs a capture. With few steps, or an unknown number of workers, it cannot tell a pause from
        workers that deliver together. Batches that took long because no core was free do not count.
    """

    meta = RuleMeta("DATA006", "bursty-starvation", "The training loop sometimes waits long for a batch")
    needs = frozenset({Input.SETTINGS})
    refines = frozenset({"DATA001", "DATA003", "DATA012"})
    claims = frozenset({Category.DATA_WAIT})
    also_saves = "waits of steps that were not recorded"

    min_share: float = 0.03
    """Share of the training time in long waits. Lower than for other waits, because it is measured over the whole
    run."""

    long_wait_share: float = 0.5
    """A long wait, as a share of the rest of the step. Delays by a busy core or a slow read are shorter."""

    max_turns_share: float = 0.3
    """Share of turns with long waits. With more, the loader is always too slow: see DATA001 and DATA003."""

    min_concentration_share: float = 0.8
    """Share of the waiting time that is in long waits."""

    max_usual_share: float = 0.25
    """Time in the loader in the median turn, as a share of the rest of the step. With more, the queue is usually empty.
    On a busy machine, taking a ready batch takes up to a sixth of a short step."""

    least_turns: int = 10
    """Number of turns. With fewer, rare waits look like regular ones."""

    max_rare_share: float = 0.2
    """Share of turns that may contain nearly all of the time in the loader. Then usual waits do not matter. In loaders
    that are always slow, a fifth of the turns contains a third of it."""

    def check(self, facts: Facts) -> Outcome:
        loader = facts.needed(facts.settings.loader, Input.SETTINGS)
        if loader.worker_count is None:
            return Skipped("The number of loader workers is unknown.")
        limits = BurstLimits(
            self.min_share,
            self.long_wait_share,
            self.max_turns_share,
            self.min_concentration_share,
            self.max_usual_share,
            self.least_turns,
            self.max_rare_share,
        )
        turns = loader_turns(facts.run.steps, loader.worker_count)
        if turns is None or turns.wait_ns.size < self.least_turns:
            return Skipped(f"Fewer than {self.least_turns} undisturbed worker turns were timed: train for more steps.")
        found = long_waits(turns, loader.worker_count, limits)
        if found.share < self.min_share:
            return Clear("share of the run in long waits", found.share, self.min_share, Unit.SHARE)
        if remark := why_not(found, limits, is_fast=usually_fast(facts)):
            label = "share of worker turns with long waits"
            return Clear(label, found.turns_share, self.max_turns_share, Unit.SHARE, remark)
        if _waited_for_cores(facts, self.long_wait_share * turns.step_ns):
            remark = "the loading thread waited for a CPU core in most of the time of long batches"
            return Clear("share of the run in other long waits", 0.0, self.min_share, Unit.SHARE, remark)
        prefetch = loader.prefetch_factor or DEFAULT_PREFETCH
        is_filled = why_not(replace(found, are_rare=False), limits, is_fast=usually_fast(facts)) is None
        needed = _needed(facts, found, loader.worker_count, prefetch) if is_filled and loader.worker_count else None
        unknown = "the waits were measured over the whole run, and only a few steps were recorded"
        fix = Fix("Smooth the data source" if loader.worker_count else AHEAD, not_replayed=unknown)
        line = None if loader.worker_count else facts.run.loader_line
        if needed is not None and needed <= LONGEST_PREFETCH:
            arguments = {"num_workers": loader.worker_count, "prefetch_factor": needed}
            summary = "Prefetch more batches, or smooth the data source"
            fix = loader_fix(facts, summary, arguments, not_replayed=unknown)
        return finding_of(
            facts,
            claims=facts.claim(Category.DATA_WAIT),
            fix=fix,
            effort=Effort.SETTING,
            evidence=(
                Evidence("share of the run in long waits", found.share, Unit.SHARE),
                Evidence("time in long waits, mean over all steps", found.mean_ns, Unit.NS_PER_STEP),
                Evidence("share of worker turns with long waits", found.turns_share, Unit.SHARE),
                Evidence("longest wait", found.longest_ns, Unit.NS),
                Evidence("median rest of the step", turns.step_ns, Unit.NS_PER_STEP),
                Evidence("batches in a full queue", loader.worker_count * prefetch, Unit.COUNT),
                facts.known("share of the loading in this line", line.share if line else None, Unit.SHARE),
            ),
            most_share=found.share,
            locations=facts.loading_locations,
            caveats=("A longer queue takes more CPU memory.",) if fix.change else (),
        )


def _waited_for_cores(facts: Facts, least_ns: float) -> bool:
    """Whether most of what long batches took beyond usual ones is waiting for a core.

    ``least_ns``: how much longer than usual a long one takes.
    """
    run = facts.run.captured
    batches = [one for one in run.batches if one.core_wait_ns is not None] if run else []
    usual_ns = median([one.duration_ns for one in batches]) if batches else 0.0
    long = [one for one in batches if one.duration_ns >= usual_ns + least_ns]
    waited_ns = sum(min(one.core_wait_ns or 0, one.duration_ns) for one in long)
    return bool(long) and 2 * waited_ns > sum(one.duration_ns - usual_ns for one in long)


def _needed(facts: Facts, found: Bursts, workers: int, prefetch: int) -> int | None:
    """The ``prefetch_factor`` that bridges the pauses; None if none does."""
    curve = facts.worker_curve
    if curve and curve.cost.source is CostSource.CLOCKS and not curve.at(workers).is_hidden:
        return curve.shortest_prefetch(workers)
    return prefetch + ceil(found.longest_ns / max(found.turns.step_ns, 1.0) / workers)
