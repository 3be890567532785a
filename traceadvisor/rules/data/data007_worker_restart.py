from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from traceadvisor.analysis.data.loader_time import sampler_share
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.run import LoaderLoops
from traceadvisor.rules.base import Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.epoch_starts import epoch_starts
from traceadvisor.rules.data.loading_limit import RAN_AHEAD
from traceadvisor.rules.data.worker_proposal import loader_fix

SEES_NO_CHANGE = "Kept workers do not see changes to the data set between epochs."

OTHER_DATA = "the script makes a data set for each loop, which workers of an earlier one do not hold"

SETTLING = "extra time of the steps that follow, at most"

MADE_ONCE = ", made once, before its loops"

UNKNOWN_SAMPLER = (
    "The sampler also runs at the start of an epoch, and kept workers do not shorten it. This capture does not tell "
    "both apart; a new capture does."
)


@frozen
class WorkerRestart(Rule):
    """Each loop over a data loader stops its workers and starts new ones.

    What it finds: The time to start and stop worker processes, of each data loader of the run with
        ``persistent_workers=False``, validation's too, for all loops except the first. The sampler does not count. The
        first batch counts as far as it comes later than a worker takes to make one; of an iterable data set, than it
        takes to make a first one, since ``__iter__`` runs in kept workers, too. Captures before 2026-11-27 time the
        loader's ``__iter__`` without samples of the sampler, the extra time of the first ``__next__``, and the last
        call of the epoch before. Where the script makes a new loader for each loop, workers cannot be kept; the
        finding then says to make it once, and there is none if each loop has other data.
    Why it costs time: Each worker is a new process that imports modules, opens files and fills caches again. The queue
        is empty until the first batch is ready.
    How to fix it: Make the ``DataLoader`` once, and pass ``persistent_workers=True``: it keeps the workers, and the
        state of their data set, between epochs.
    How the saving is estimated: Upper limit: the share of the training loop in starts and stops of workers, applied to
        the training time per step. What the first 20 steps of an epoch take longer than later ones (in short epochs:
        than the fastest tenth) counts too, up to the time of the start itself: workers that start take cores.
    When it may be wrong: Kept workers hold their memory between epochs, also during validation. They do not see changes
        that the training process makes to the data set between epochs, such as its seed or the length of samples.
    """

    meta = RuleMeta("DATA007", "worker-restart", "Loader workers are restarted in each epoch")
    needs = frozenset({Input.SETTINGS})
    also_saves = "starts of epochs, and the steps that follow, in steps that were not recorded"

    min_share: float = 0.01
    """Share of the training time. The fix is one argument; less is noise."""

    def check(self, facts: Facts) -> Outcome:
        loader, timing = facts.needed(facts.settings.loader, Input.SETTINGS), facts.timing
        if (measured := worker_starts(facts)) is not None:
            return self._measured(facts, measured)
        if not loader.worker_count:
            return Skipped("The data loader has no workers, or their number is unknown.")
        starts, by_sampler = epoch_starts(facts.run.steps), sampler_share(facts.run.stack_samples)
        if starts and by_sampler is not None:
            starts = starts.without_sampler(by_sampler)
        if timing.launch_ns:
            return Skipped(RAN_AHEAD)
        if starts is None or not timing.undisturbed_ns:
            return Skipped("The start of a second epoch was not captured: capture a longer run.")
        training_ns = max(starts.training_step_ns, starts.per_step_ns)
        share = starts.per_step_ns / training_ns
        if loader.persistent_workers or share < self.min_share:
            remark = "workers are kept between epochs" if loader.persistent_workers else None
            return Clear("share of the run in epoch starts", share, self.min_share, Unit.SHARE, remark)
        return finding_of(
            facts,
            fix=loader_fix(
                facts,
                "Keep the workers between epochs",
                {"num_workers": loader.worker_count, "persistent_workers": True},
                not_replayed="epochs start outside the simulated steps",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("share of the run in epoch starts", share, Unit.SHARE),
                Evidence("time to start an epoch, spread over its steps", starts.per_step_ns, Unit.NS_PER_STEP),
                Evidence("time per step, epoch starts included", training_ns, Unit.NS_PER_STEP),
                Evidence("time to start the workers", starts.start_ns, Unit.NS),
                Evidence("extra time of the first batch", starts.first_batch_ns, Unit.NS),
                facts.known("time to stop the workers", starts.end_ns or None, Unit.NS),
                facts.known(SETTLING, starts.settling_ns or None, Unit.NS),
                Evidence("steps per epoch", starts.steps_per_epoch, Unit.COUNT),
                Evidence("measured epoch starts, without the first", starts.count, Unit.COUNT),
            ),
            most_share=min(starts.most_per_step_ns / training_ns, 1.0),
            whole_ns=training_ns,
            locations=facts.loader_locations,
            caveats=(SEES_NO_CHANGE, *(() if by_sampler is not None else (UNKNOWN_SAMPLER,))),
        )

    def _measured(self, facts: Facts, found: Sequence[LoopsShare]) -> Outcome:
        share, label = sum(one.share for one in found), "share of the training time in starts and stops of workers"
        costly = [one for one in found if one.share >= self.min_share / 2]
        if share < self.min_share or not costly:
            kept = facts.settings.loader is not None and bool(facts.settings.loader.persistent_workers) and not found
            remark = "workers are kept between loops" if kept else None
            remark = OTHER_DATA if not all(one.same_data for one in facts.settings.loops or ()) else remark
            return Clear(label, share, self.min_share, Unit.SHARE, remark)
        training_ns = self._per_step_ns(facts)
        settling_share = sum(_settling_share(facts, one.loops) for one in costly)
        return finding_of(
            facts,
            fix=_keeps(facts, costly),
            effort=Effort.SETTING,
            evidence=(
                Evidence(label, share, Unit.SHARE),
                facts.known(SETTLING, settling_share or None, Unit.SHARE),
                *(row for one in costly for row in _evidence(one)),
            ),
            most_share=min(sum(one.share for one in costly) + settling_share, 1.0),
            whole_ns=training_ns,
            locations=tuple(
                place for one in costly for place in (one.loops.constructed, one.loops.location) if place is not None
            )
            or facts.loader_locations,
            caveats=(SEES_NO_CHANGE,),
        )

    @staticmethod
    def _per_step_ns(facts: Facts) -> float | None:
        """The training loop per step; None if unknown."""
        run = facts.run.time
        return run.loop_ns / run.training_steps if run and run.training_steps else None


def _settling_share(facts: Facts, loops: LoaderLoops) -> float:
    """Return the extra time of the steps that follow the starts of the training's loops, at most, as a share."""
    starts, run = epoch_starts(facts.run.steps) if loops.trains else None, facts.run.time
    return starts.settling_ns * loops.count / run.loop_ns if starts and run else 0.0


def _keeps(facts: Facts, costly: Sequence[LoopsShare]) -> Fix:
    """The fix that keeps the workers of these loaders."""
    unknown = "epochs and validation start outside the simulated steps"
    mine = next((one.loops for one in costly if one.loops.trains and one.loops.loaders == 1), None)
    lines = [
        f"DataLoader(dataset, num_workers={one.loops.workers}, persistent_workers=True)"
        f"  # the {one.name}{MADE_ONCE if one.loops.loaders > 1 else ''}"
        for one in costly
        if one.loops is not mine
    ]
    if mine is None:
        makes_once = any(one.loops.loaders > 1 for one in costly)
        summary = "Keep the workers of this data loader between its loops"
        if makes_once:
            summary = "Make this data loader once, before its loops, and keep its workers"
        return Fix(summary, "\n".join(lines), not_replayed=unknown, needs=frozenset({Part.LOADER}))
    arguments = {"num_workers": mine.workers, "persistent_workers": True}
    fix = loader_fix(facts, "Keep the workers between epochs", arguments, not_replayed=unknown)
    return replace(fix, change="\n".join(filter(None, (fix.change, *lines))))


def _evidence(found: LoopsShare) -> Iterator[Evidence]:
    loops, name = found.loops, found.name
    yield Evidence(f"time to start workers, {name}", loops.worker_start_ns / loops.count, Unit.NS)
    yield Evidence(f"time to stop workers, {name}", loops.worker_stop_ns / loops.count, Unit.NS)
    yield Evidence(f"time to get the first batch, {name}", loops.first_batch_ns / loops.count, Unit.NS)
    yield Evidence(f"time in the sampler at the start, {name}", loops.sampler_ns / loops.count, Unit.NS)
    yield Evidence(f"measured loops without the first, {name}", loops.count, Unit.COUNT)


@frozen
class LoopsShare:
    """The loops over one loader, and what their processes cost."""

    loops: LoaderLoops
    share: float
    """Time that kept workers save, as a share of the training time."""

    @property
    def name(self) -> str:
        """The loader in words: that of the training, or the line of its loop."""
        if self.loops.trains:
            return "training loader"
        place = self.loops.location
        return f"loader of {place.file}:{place.line}" if place else "another loader"


def worker_starts(facts: Facts) -> tuple[LoopsShare, ...] | None:
    """Return each loader's loops that start workers anew, the costliest first; None if loops were not timed."""
    run = facts.run.time
    if facts.settings.loops is None or run is None or run.loop_ns <= 0:
        return None
    anew = (
        loops for loops in facts.settings.loops if loops.same_data and (not loops.keeps_workers or loops.loaders > 1)
    )
    shares = (LoopsShare(loops, min(loops.workers_ns / run.loop_ns, 1.0)) for loops in anew)
    return tuple(sorted(shares, key=lambda one: -one.share))
