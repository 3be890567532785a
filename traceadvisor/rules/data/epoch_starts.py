"""What it costs to begin an epoch: workers start, and the first batch is long in coming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from traceadvisor.model.run import StepState, TimedStep


@dataclass(frozen=True, slots=True)
class EpochStarts:
    """The epochs of a run after its first."""

    count: int
    start_ns: float
    """Mean time to begin the loop over the loader."""

    first_batch_ns: float
    """Mean time by which the first batch takes longer than the others."""

    steps_per_epoch: float
    """Mean number of steps from one start to the next."""

    @property
    def per_step_ns(self) -> float:
        """What the starts come to for each step."""
        return (self.start_ns + self.first_batch_ns) / self.steps_per_epoch


def epoch_starts(steps: Sequence[TimedStep]) -> EpochStarts | None:
    """The starts after the first; None where there are none, or where they were not recorded."""
    trained = [step for step in steps if step.state is not StepState.OTHER]
    starts = [number for number, step in enumerate(trained) if step.loader_start_ns]
    if len(starts) < 2:
        return None
    usual_ns = (
        median(step.loader_ns for step in trained if not step.loader_start_ns) if len(starts) < len(trained) else 0
    )
    later = [trained[number] for number in starts[1:]]
    return EpochStarts(
        len(later),
        fmean(step.loader_start_ns or 0 for step in later),
        fmean(max(step.loader_ns - usual_ns, 0) for step in later),
        fmean(after - before for before, after in pairwise(starts)),
    )
