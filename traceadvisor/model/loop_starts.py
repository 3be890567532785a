"""The step that holds the start of a loop over the loader: the first one of the loop, or the one before."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from traceadvisor.model.run import StepState, TimedStep


def is_inside(step: TimedStep, before: TimedStep) -> bool:
    """Whether the loop was started in the step itself, and not at the end of a validation before it."""
    room_ns = step.duration_ns - step.loader_ns
    return before.state is not StepState.OTHER and room_ns >= (step.loader_start_ns or 0)


def ends_with_start(steps: Iterable[TimedStep]) -> frozenset[int]:
    """Return the indices of training steps whose time holds the start of the next loop: a ``break`` ended theirs.

    Such a step also drops the old loop, with its workers and its order of samples.
    """
    return frozenset(
        before.index
        for before, step in pairwise(steps)
        if step.loader_start_ns and before.state is not StepState.OTHER
        if not is_inside(step, before) and before.duration_ns >= step.loader_start_ns
    )
