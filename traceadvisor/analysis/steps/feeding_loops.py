"""Loops of one batch each that bring a training step its data, such as the episodes of meta-learning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from traceadvisor.analysis.whole_run.sampled_steps import SampledSteps
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.run_time import RunCause

NEARLY_ALL = 0.75
"""Share of the training steps with such loops before them. Validation is rarer than training."""

MOST_LOOPS = 2
"""Loops before a step, relative to the median step: more are a validation by episodes."""

FEWEST_SAMPLES = 5
MOSTLY = 0.5
"""Share of samples beside the loader in functions without gradients, from which such loops are validation."""


def feeding_loops(steps: Sequence[TimedStep], sampled: SampledSteps | None) -> frozenset[int]:
    """Return the places of loops without an optimizer step that are no validation: training uses their batches.

    Each takes a single batch, nearly every training step has some before it, and samples show no evaluation there.
    """
    stretches = [one for one in _stretches(steps) if all(steps[place].fetches <= 1 for place in one)]
    trained = sum(step.state is not StepState.OTHER for step in steps)
    if len(stretches) < max(NEARLY_ALL * trained, 2):
        return frozenset()
    most = MOST_LOOPS * median(map(len, stretches))
    found = frozenset(place for one in stretches if len(one) <= most for place in one)
    return frozenset() if sampled is not None and _evaluates(found, sampled) else found


def _stretches(steps: Sequence[TimedStep]) -> Iterator[list[int]]:
    """The places of the loops without an optimizer step before each training step that has some."""
    held: list[int] = []
    for place, step in enumerate(steps):
        if step.state is StepState.OTHER:
            held += [place] if step.fetches else []
        elif held:
            yield held
            held = []


def _evaluates(places: frozenset[int], sampled: SampledSteps) -> bool:
    """Whether samples of what is done with these batches are in functions that run without gradients."""
    used = np.isin(sampled.step, list(places)) & ~sampled.doing(RunCause.LOADER)
    without = used & sampled.doing(RunCause.EVALUATION)
    return int(used.sum()) >= FEWEST_SAMPLES and without.sum() >= MOSTLY * used.sum()
