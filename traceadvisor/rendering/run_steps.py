"""The steps of a whole run by what the profiler was doing, as every format counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from traceadvisor.model.run import Run, StepState, TimedStep


@dataclass(frozen=True, slots=True)
class StateSteps:
    """The steps of one state."""

    state: StepState
    count: int
    median_ns: float
    mean_ns: float
    longest_ns: int
    mean_loader_ns: float
    """Not the median: a loader with several workers delivers in bursts, and most steps wait for none."""


def steps_by_state(run: Run) -> tuple[StateSteps, ...]:
    """The states that occurred; the run's first step, which starts everything up, counts nowhere."""
    later = [step for step in run.steps if step.index > 0]
    by_state = ((state, [step for step in later if step.state is state]) for state in StepState)
    return tuple(_counted(state, steps) for state, steps in by_state if steps)


def undisturbed_count(run: Run) -> int:
    """How many steps the undisturbed median is over."""
    return sum(step.state is StepState.PLAIN and step.index > 0 for step in run.steps)


def _counted(state: StepState, steps: Sequence[TimedStep]) -> StateSteps:
    return StateSteps(
        state=state,
        count=len(steps),
        median_ns=float(median(step.duration_ns for step in steps)),
        mean_ns=fmean(step.duration_ns for step in steps),
        longest_ns=max(step.duration_ns for step in steps),
        mean_loader_ns=fmean(step.loader_ns for step in steps),
    )
