"""The cost of starting an epoch: workers stop and start, and the steps that follow take longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median, quantiles

from traceadvisor.frozen import frozen
from traceadvisor.model.loop_starts import is_inside
from traceadvisor.model.run import StepState, TimedStep

SETTLING_STEPS = 20
"""Steps after a start that may be slower for it: workers start, fill their queues and take cores from the training. By
default, two to eight workers hold 4 to 16 batches."""

FEWEST_SETTLED = 10
"""Later steps that show how long a step takes then. With fewer, the fastest tenth of all steps does: the least that
steps of such short epochs could take."""


@frozen
class EpochStarts:
    """Mean times over the epochs of a run, without the first."""

    count: int
    start_ns: float
    """Mean time to start the loop over the data loader."""

    first_batch_ns: float
    """Mean extra time of the first batch compared with the others."""

    end_ns: float
    """Mean time in the data loader after the last step of the epoch before, in which it stops its workers."""

    settling_ns: float
    """Other time by which the first steps of an epoch are longer than later ones, at most: no longer than the start
    itself, an assumption. Steps of short epochs also differ for other reasons."""

    steps_per_epoch: float
    """Mean number of steps between two starts."""

    training_step_ns: float
    """Mean undisturbed step, with the starts of epochs."""

    def without_sampler(self, share: float) -> EpochStarts:
        """The same if a share of the time to start a loop is the sampler's."""
        return replace(self, start_ns=self.start_ns * (1 - share))

    @property
    def per_step_ns(self) -> float:
        """The cost of the starts per step, without that of the steps that follow."""
        return (self.start_ns + self.first_batch_ns + self.end_ns) / self.steps_per_epoch

    @property
    def most_per_step_ns(self) -> float:
        """The same with the steps that follow."""
        return self.per_step_ns + self.settling_ns / self.steps_per_epoch


def epoch_starts(steps: Sequence[TimedStep]) -> EpochStarts | None:
    """Return the starts after the first; None if there are none, or if they were not recorded."""
    trained = [step for step in steps if step.state is not StepState.OTHER]
    starts = [number for number, step in enumerate(trained) if step.loader_start_ns]
    if len(starts) < 2:
        return None
    usual_ns = (
        median(step.loader_ns for step in trained if not step.loader_start_ns) if len(starts) < len(trained) else 0
    )
    later = [trained[number] for number in starts[1:]]
    per_epoch = fmean(after - before for before, after in pairwise(starts))
    first_batch_ns = fmean(max(step.loader_ns - usual_ns, 0) for step in later)
    ends_ns = [
        after.loader_ns
        for before, after in pairwise(steps)
        if after.state is StepState.OTHER and before.state is not StepState.OTHER
    ]
    end_ns = sum(ends_ns[: len(later)]) / len(later)
    start_ns = fmean(step.loader_start_ns or 0 for step in later)
    settling_ns = max(_settling_ns(steps, trained, starts) - first_batch_ns, 0.0)
    return EpochStarts(
        len(later),
        start_ns,
        first_batch_ns,
        end_ns,
        min(settling_ns, start_ns + first_batch_ns + end_ns),
        per_epoch,
        _training_step_ns(steps, per_epoch) + end_ns / per_epoch,
    )


def _settling_ns(steps: Sequence[TimedStep], trained: Sequence[TimedStep], starts: Sequence[int]) -> float:
    """Return the mean extra time of the first steps of an epoch, without the time to start it."""
    inside = {step.index for before, step in pairwise(steps) if step.loader_start_ns and is_inside(step, before)}
    by_place: list[list[int]] = []
    for begin, end in pairwise((*starts[1:], len(trained))):
        for place, step in enumerate(trained[begin:end]):
            if place >= len(by_place):
                by_place.append([])
            started_ns = step.loader_start_ns or 0 if step.index in inside else 0
            if step.state is StepState.PLAIN:
                by_place[place].append(step.duration_ns - started_ns)
    settled = [ns for place in by_place[SETTLING_STEPS:] for ns in place]
    if len(settled) >= FEWEST_SETTLED:
        usual_ns = median(settled)
    else:
        every = [ns for place in by_place for ns in place]
        usual_ns = quantiles(every, n=10)[0] if len(every) > 1 else max(every, default=0)
    extra_ns = (max(fmean(place) - usual_ns, 0.0) for place in by_place[:SETTLING_STEPS] if place)
    return sum(extra_ns)


def _training_step_ns(steps: Sequence[TimedStep], per_epoch: float) -> float:
    """Return the mean undisturbed step within epochs, with the longer first steps of epochs spread over their steps."""
    trained = [step for step in steps if step.state is not StepState.OTHER]
    within = [step for step in trained if step.state is StepState.PLAIN and not step.loader_start_ns and step.index]
    usual_ns = fmean(step.duration_ns for step in within or trained)
    extra_ns = [
        max(step.duration_ns - usual_ns, 0.0) + (0 if is_inside(step, before) else step.loader_start_ns or 0)
        for before, step in pairwise(steps)
        if step.loader_start_ns and step.state is not StepState.OTHER
    ]
    return usual_ns + fmean(extra_ns) / per_epoch if extra_ns else usual_ns
