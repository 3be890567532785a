"""The function of the user that takes most of the time between training steps, by samples of the whole run."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from traceadvisor.analysis.sampled.paths import place_of
from traceadvisor.analysis.whole_run.sampled_steps import SampledSteps
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Location
from traceadvisor.model.run import Run, StepState
from traceadvisor.model.run_time import RunCause
from traceadvisor.model.samples import OWN_WORK, SampledFrame
from traceadvisor.statistics import share_interval

FEWEST_SAMPLES = 12
"""Samples that name a function. With fewer, chance decides which one."""

_SCRIPT = (None, RunCause.EVALUATION)
"""Causes of stacks in the script's own code; loading, saving and compiling have parts of the run of their own."""


@frozen
class BetweenSteps:
    """The function with the most time between training steps."""

    line: Location
    """Its line with the most time."""

    share: float
    """Share of the training loop, with all that it calls, and with what it takes after the last step."""

    least_share: float
    """Lower end of the 95% interval of the share."""

    time_ns: int
    count: int
    """Samples of it."""

    times: int
    """Stretches between training steps that it runs in."""


def between_steps(run: Run, sampled: SampledSteps | None, loop_ns: int) -> BetweenSteps | None:
    """Return the function that takes most between training steps; None if too few samples show it.

    ``loop_ns``: the training loop, without the profiler. Validation and the loader are other parts of it. What runs
    after the last step counts if it also runs between steps.
    """
    if sampled is None or not run.steps or loop_ns <= 0:
        return None
    users = [_users(frames, cause) for frames, cause in zip(sampled.frames, sampled.causes, strict=True)]
    between, after = (
        _between(run, sampled),
        sampled.at_ns >= max((step.clock_ns or 0) + step.duration_ns for step in run.steps),
    )
    times_ns = _by_function(sampled, users, between)
    most = max(times_ns, key=lambda one: times_ns[one], default=None)
    if most is None:
        return None
    held = [[one for one in of if _function(one) == most] for of in users]
    trains = set(sampled.stack[~between & (sampled.step != NONE)].tolist())
    if any(held[stack] for stack in trains):  # it also holds the training steps: only its own lines count
        held = [[one for one in of[-1:] if _function(one) == most] for of in users]
    lines = [of[-1] if of else None for of in held]
    is_own = np.array([line is not None for line in lines], dtype=np.bool_)[sampled.stack]
    own = is_own & (between | after)
    count, time_ns = int(own.sum()), int(sampled.weight_ns[own].sum())
    if count < FEWEST_SAMPLES or not time_ns:
        return None
    share = time_ns / (loop_ns + int(sampled.weight_ns[is_own & after].sum()))
    low, _ = share_interval(min(share, 1.0), round(count / min(share, 1.0)))
    return BetweenSteps(_most_line(sampled, lines, own), share, low, time_ns, count, _stretches(run, sampled, own))


def _between(run: Run, sampled: SampledSteps) -> Mask:
    """Which samples lie in no training step, and in no loop over a data loader."""
    is_between = [step.state is StepState.OTHER and not step.fetches for step in run.steps]
    found: Mask = np.array([*is_between, False], dtype=np.bool_)[sampled.step] & (sampled.step != NONE)
    return found


def _users(frames: Iterable[SampledFrame], cause: RunCause | None) -> list[SampledFrame]:
    """The lines of the user's functions, outermost first; none in work of the capture, or of another part of the run.

    What a comprehension or a lambda takes is time of the function that holds it.
    """
    of = list(frames)
    if OWN_WORK in of or cause not in _SCRIPT:
        return []
    return [one for one in of if one.is_user and (one.function == "<module>" or not one.function.startswith("<"))]


def _function(line: SampledFrame) -> tuple[str | None, str]:
    return line.file, line.function


def _by_function(
    sampled: SampledSteps, users: list[list[SampledFrame]], which: Mask
) -> dict[tuple[str | None, str], int]:
    """The time in which each function is the innermost one of the user's."""
    found: dict[tuple[str | None, str], int] = {}
    for stack, weight_ns in zip(sampled.stack[which].tolist(), sampled.weight_ns[which].tolist(), strict=True):
        for line in users[stack][-1:]:
            found[_function(line)] = found.get(_function(line), 0) + weight_ns
    return found


def _most_line(sampled: SampledSteps, lines: list[SampledFrame | None], which: Mask) -> Location:
    weights: dict[SampledFrame, int] = {}
    for stack, weight_ns in zip(sampled.stack[which].tolist(), sampled.weight_ns[which].tolist(), strict=True):
        if (line := lines[stack]) is not None:
            weights[line] = weights.get(line, 0) + weight_ns
    return place_of(max(weights, key=lambda one: weights[one]))


def _stretches(run: Run, sampled: SampledSteps, which: Mask) -> int:
    """Return how many stretches between training steps hold some samples; the one after the last step is one."""
    trained = np.cumsum([step.state is not StepState.OTHER for step in run.steps])
    return int(np.unique(np.where(sampled.step[which] == NONE, trained[-1], trained[sampled.step[which]])).size)
