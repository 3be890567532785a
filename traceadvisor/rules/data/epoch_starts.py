"""The cost of starting an epoch: workers start, and the first batch takes longer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from traceadvisor.frozen import frozen
from traceadvisor.model.run import StepState, TimedStep


@frozen
class EpochStarts:
    """Mean times over the epochs of a run, without the first."""

    count: int
    start_ns: float
    """Mean time to start the loop over the data loader."""

    first_batch_ns: float
    """Mean extra time of the first batch compared with the others."""

    steps_per_epoch: float
    """Mean number of steps between two starts."""

    training_step_ns: float
    """Mean undisturbed step, with the starts of epochs."""

    @property
    def per_step_ns(self) -> float:
        """The cost of the starts per step."""
        return (self.start_ns + self.first_batch_ns) / self.steps_per_epoch


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
    return EpochStarts(
        len(later),
        fmean(step.loader_start_ns or 0 for step in later),
        fmean(max(step.loader_ns - usual_ns, 0) for step in later),
        per_epoch,
        _training_step_ns(steps, per_epoch),
    )


def _training_step_ns(steps: Sequence[TimedStep], per_epoch: float) -> float:
    """Return the mean undisturbed step within epochs, with the longer first steps of epochs spread over their steps."""
    trained = [step for step in steps if step.state is not StepState.OTHER]
    within = [step for step in trained if step.state is StepState.PLAIN and not step.loader_start_ns and step.index]
    usual_ns = fmean(step.duration_ns for step in within or trained)
    extra_ns = [
        max(step.duration_ns - usual_ns, 0.0) + (0 if _is_inside(step, before) else step.loader_start_ns or 0)
        for before, step in pairwise(steps)
        if step.loader_start_ns and step.state is not StepState.OTHER
    ]
    return usual_ns + fmean(extra_ns) / per_epoch if extra_ns else usual_ns


def _is_inside(step: TimedStep, before: TimedStep) -> bool:
    """Whether the loop was started in the step itself, and not at the end of a validation before it."""
    room_ns = step.duration_ns - step.loader_ns
    return before.state is not StepState.OTHER and room_ns >= (step.loader_start_ns or 0)
