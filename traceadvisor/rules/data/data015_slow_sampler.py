from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.sampled.loader_frames import part_of
from traceadvisor.model.findings import Clear, Effort, Estimate, Evidence, Fix, Method, Skipped, Unit
from traceadvisor.model.loader_time import LoaderPart
from traceadvisor.model.location import Location
from traceadvisor.model.samples import SampledFrame
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import REMOVED_SHARE
from traceadvisor.replay.what_if import Scenario
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.data.loading_limit import MOSTLY, OF_LOADERS
from traceadvisor.statistics import share_interval

MAKES_LIST = "RandomSampler"
"""Sampler of torch that makes a list of all indices at the start of each epoch."""

STARTS_CHEAPER = "Make the start of the sampler cheaper: prepare what does not change between epochs only once"
STARTS = {
    MAKES_LIST: "Convert the order of the samples in parts: RandomSampler makes a list of all indices at once",
    "WeightedRandomSampler": (
        "Draw fewer samples per epoch (num_samples), or with replacement: WeightedRandomSampler draws all samples of "
        "an epoch at its start, and without replacement that takes longer"
    ),
}
"""The fix by the sampler's class."""

PART = 4096
"""Indices that a sampler may as well convert at once."""

CHUNKS = (
    "class Chunks(torch.utils.data.Sampler):\n"
    "    def __init__(self, data): self.length = len(data)\n"
    "    def __len__(self): return self.length\n"
    "    def __iter__(self):\n"
    f"        for part in torch.randperm(self.length).split({PART}): yield from part.tolist()\n\n"
    "DataLoader(dataset, sampler=Chunks(dataset))  # instead of shuffle=True; keep the other arguments"
)


@frozen
class SlowSampler(Rule):
    """The sampler of the data loader takes long, and runs in the training process, whatever the number of workers.

    What it finds: Time of the training thread in the sampler or batch sampler: within ``__next__`` by samples of its
        stack, at the start of each loop by clock reads in ``__iter__``. A few samples do not show it, and a loader's
        own samplers already draw an epoch at once.
    Why it costs time: The sampler picks samples before a worker can make the batch. The training thread launches
        nothing meanwhile.
    How to fix it: Draw the batches of an epoch at once with array operations, or before the training. Keep data sorted
        that each batch sorts again. ``RandomSampler`` (``shuffle=True``) makes a Python list of all indices at the
        start of each epoch: for tens of millions of samples, convert the permutation in parts.
    How the saving is estimated: Within steps: 0.9 of the sampled share of the undisturbed time in the loader (low: 0.5
        of the lower end of its 95% interval; high: all of the upper end). At the start of loops: at most all of that
        time.
    When it may be wrong: A sampler that groups samples well may save more time in the model than it costs.
    """

    meta = RuleMeta("DATA015", "slow-sampler", "The sampler takes the time of the training thread")
    needs = frozenset({Input.STEPS, Input.SETTINGS})
    refines = frozenset({"DATA001", "DATA003", "DATA004", "DATA008", "DATA012"})
    claims = frozenset({Category.DATA_WAIT})

    min_share: float = 0.03
    """Share of the training time. The fix is a few lines of Python, and no other fix shortens this time."""

    min_low_share: float = 0.01
    """Lower end of the 95% interval of the share of a step in the sampler. Two samples of twenty show nothing."""

    def check(self, facts: Facts) -> Outcome:
        time, timing = facts.loader_time, facts.timing
        if time is None or not timing.undisturbed_ns:
            return Skipped(facts.unknown_without("The time in the sampler is unknown", Option.CAPTURE))
        mean_ns = time.per_step_ns(LoaderPart.SAMPLER) if time.sample_count else 0.0
        usual_ns = min(mean_ns, _usual_ns(facts))
        within = 0.0 if _is_of_torch(facts) else usual_ns / timing.undisturbed_ns
        low, _ = share_interval(time.share(LoaderPart.SAMPLER), time.sample_count) if time.sample_count else (0.0, 0.0)
        if low * min(time.total_ns / time.steps, _usual_ns(facts)) < self.min_low_share * timing.undisturbed_ns:
            within = 0.0
        at_start = _share_at_start(facts, (mean_ns - usual_ns) * time.steps)
        if _has_few_indices(facts):
            at_start = 0.0
        if max(within, at_start) < self.min_share:
            return Clear("time in the sampler", max(within, at_start), self.min_share, Unit.SHARE)
        return self._within(facts) if within >= at_start else self._at_start(facts, at_start)

    def _within(self, facts: Facts) -> Outcome:
        time, step_ns = facts.needed(facts.loader_time, Input.SETTINGS), facts.timing.undisturbed_ns or 1.0
        share, loader_ns = time.share(LoaderPart.SAMPLER), min(time.total_ns / time.steps, _usual_ns(facts))
        low, high = share_interval(share, time.sample_count)
        low_ns, expected_ns = REMOVED_SHARE[Scenario.LOW] * low, REMOVED_SHARE[Scenario.EXPECTED] * share
        wait = facts.claim(Category.DATA_WAIT)
        return finding_of(
            facts,
            claims=wait if share >= MOSTLY else _beginnings(wait, share),
            fix=Fix("Make the sampler cheaper: draw the batches of an epoch at once, with array operations"),
            saving=Estimate(low_ns * loader_ns, expected_ns * loader_ns, high * loader_ns, Method.MODEL),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("time in the sampler", share * loader_ns, Unit.NS_PER_STEP),
                Evidence("share of the step in the sampler", share * loader_ns / step_ns, Unit.SHARE),
                Evidence("share of the time in the data loader", share, Unit.SHARE),
                Evidence("samples of the time in the data loader", time.sample_count, Unit.COUNT),
                facts.time_per_step("data wait", wait),
            ),
            locations=(*sampler_lines(facts), *facts.loader_locations),
        )

    def _at_start(self, facts: Facts, share: float) -> Outcome:
        loops, run, loader = facts.settings.loops or (), facts.run.time, facts.settings.loader
        sampler = loader.sampler if loader else None
        makes_list = sampler == MAKES_LIST
        return finding_of(
            facts,
            fix=Fix(
                STARTS.get(sampler or "", STARTS_CHEAPER),
                CHUNKS if makes_list else None,
                not_replayed="epochs start outside the simulated steps",
                needs=frozenset({Part.LOADER}) if makes_list else frozenset(),
            ),
            effort=Effort.LINE if makes_list else Effort.REFACTOR,
            evidence=(
                Evidence("share of the training time in the sampler, at the start of loops", share, Unit.SHARE),
                *(
                    Evidence("time in the sampler per start", one.sampler_ns / one.count, Unit.NS)
                    for one in loops
                    if one.trains and one.sampler_ns
                ),
                facts.known("samples per epoch", loader.sample_count if loader else None, Unit.COUNT),
                facts.known("sampler", sampler, Unit.TEXT),
            ),
            most_share=share,
            whole_ns=run.loop_ns / run.training_steps if run and run.training_steps else None,
            locations=(*sampler_lines(facts), *facts.loader_locations),
        )


def _has_few_indices(facts: Facts) -> bool:
    """Whether the list that the sampler makes for an epoch takes no time: something else held up its start."""
    loader = facts.settings.loader
    if loader is None or loader.sampler != MAKES_LIST or loader.sample_count is None:
        return False
    return loader.sample_count <= PART


def _is_of_torch(facts: Facts) -> bool:
    """Whether the loader's sampler is one that draws an epoch at once, and nothing of the user runs in it."""
    loader = facts.settings.loader
    return loader is not None and loader.sampler in OF_LOADERS and not sampler_lines(facts)


def _beginnings(wait: SpanSet, share: float) -> SpanSet:
    """The first part of each wait: a loader asks its sampler before it loads."""
    lengths_ns = np.rint(share * (wait.ends_ns - wait.starts_ns)).astype(np.int64)
    return SpanSet.union_of(wait.starts_ns, wait.starts_ns + lengths_ns)


def _usual_ns(facts: Facts) -> float:
    """The time of a usual step in the loader: what only some steps have beyond it is no part of every step."""
    usual_ns = facts.timing.undisturbed_loader_ns
    return float("inf") if usual_ns is None else usual_ns


def _share_at_start(facts: Facts, first_ns: float) -> float:
    """The share of the training time that samplers take at the start of loops.

    ``first_ns``: their time in first batches: a sampler that is a generator starts when it is asked for an index.
    """
    run = facts.run.time
    if run is None or run.loop_ns <= 0:
        return 0.0
    of_loops = sum(one.sampler_ns for one in facts.settings.loops or () if not one.keeps_workers)
    return min((of_loops + first_ns) / run.loop_ns, 1.0)


def sampler_lines(facts: Facts) -> tuple[Location, ...]:
    """Return the user's line with the most samples in a sampler; none if the sampler is a library's."""
    samples = facts.run.stack_samples
    times_ns: dict[SampledFrame, int] = {}
    for stack in samples.stacks if samples else ():
        frames = [samples.frames[place] for place in stack.frames] if samples else []
        if part_of(frames) is LoaderPart.SAMPLER and (line := _line_within(frames)):
            times_ns[line] = times_ns.get(line, 0) + sum(one.time_ns for one in stack.by_state.values())
    most = max(times_ns, key=lambda line: times_ns[line], default=None)
    return (Location(most.file or "", most.line or 1, most.function),) if most else ()


def _line_within(frames: Sequence[SampledFrame]) -> SampledFrame | None:
    """The innermost line of the user below the loader's call of its sampler."""
    begin = next((place for place, frame in enumerate(frames) if frame.function == "_next_index"), len(frames))
    return next((frame for frame in reversed(frames[begin:]) if frame.is_user), None)
