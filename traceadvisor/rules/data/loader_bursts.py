"""Whether a run waits for its data loader rarely but long, or often but briefly."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Mask
from traceadvisor.model.run import StepState, TimedStep


@frozen
class BurstLimits:
    """When waits are bursts; the reasons stand at the thresholds of DATA006."""

    min_share: float = 0.03
    long_wait_share: float = 0.5
    max_turns_share: float = 0.3
    min_concentration_share: float = 0.8
    max_usual_share: float = 0.25
    least_turns: int = 10
    max_rare_share: float = 0.2


BURST_LIMITS = BurstLimits()

MOST_OF_ONE = 0.5
"""Share of the time in long waits, above which one of them is a single event, and no property of the loader."""

MOST_TAKING_NS = 1_400_000
"""Longest usual time to take a batch that is ready; the same as in the low estimate of simulated savings."""


@frozen(eq=False)
class LoaderTurns:
    """Turns of a run: successive undisturbed steps, one per worker, so that each worker delivers one batch.

    Within a turn, one step may wait for all workers and the other steps for none. This is normal and not a burst.
    """

    wait_ns: Float64
    """Mean time in the data loader per step of each turn, minus that of the median turn, shape ``(n,)``.

    Taking a batch that is ready also takes time, more on a busy machine. This time is not a wait."""

    step_ns: float
    """Median step time without the time in the data loader."""

    usual_ns: float = 0.0
    """Mean time in the data loader per step of the median turn."""

    training_ns: float = 0.0
    """Mean undisturbed step, waits included: the training time per step."""


@frozen(eq=False)
class Bursts:
    """Rare long waits of a loader that is fast enough otherwise."""

    turns: LoaderTurns
    share: float
    """Share of the training time in long waits."""

    mean_ns: float
    """Time in long waits, mean over all steps."""

    turns_share: float
    """Share of turns with long waits."""

    most_share: float
    """Share of the time in long waits that one turn holds."""

    longest_ns: float
    """Longest wait in a turn."""

    are_rare: bool
    """Whether a few turns hold nearly all of the time in the loader, also of that in usual turns."""


def bursts(steps: Sequence[TimedStep], workers: int, *, is_fast: bool | None = None) -> Bursts | None:
    """Return the bursts; None if there are none, or if too few steps were timed to tell.

    ``is_fast``: whether usual batches are made fast enough, however long usual waits are; None if unknown.
    """
    turns = loader_turns(steps, workers)
    if turns is None or turns.wait_ns.size < BURST_LIMITS.least_turns:
        return None
    found = long_waits(turns, workers, BURST_LIMITS)
    return found if why_not(found, BURST_LIMITS, is_fast=is_fast) is None else None


def long_waits(turns: LoaderTurns, workers: int, limits: BurstLimits) -> Bursts:
    """Return the figures of long waits, whether these are rare or not."""
    long = turns.wait_ns >= limits.long_wait_share * turns.step_ns
    fewest = _fewest(turns, limits.min_concentration_share)
    are_rare = bool(fewest.mean() <= limits.max_rare_share and long[fewest].all())
    if are_rare:
        long = fewest
    waits_ns = turns.wait_ns[long]
    waited_ns = float(waits_ns.sum()) / turns.wait_ns.size
    share = waited_ns / max(turns.training_ns, turns.step_ns + float(turns.wait_ns.mean()), 1.0)
    longest_ns = float(turns.wait_ns.max()) * max(workers, 1)
    most = float(waits_ns.max(initial=0.0) / max(waits_ns.sum(), 1.0))
    return Bursts(turns, share, waited_ns, float(long.mean()), most, longest_ns, are_rare)


def _fewest(turns: LoaderTurns, share: float) -> Mask:
    """Return the fewest turns that hold this share of all time in the loader."""
    times_ns = turns.wait_ns + turns.usual_ns
    order = np.argsort(-times_ns)
    count = 1 + np.searchsorted(np.cumsum(times_ns[order]), share * times_ns.sum())
    chosen = np.zeros(times_ns.size, np.bool_)
    chosen[order[:count]] = True
    return chosen


def why_not(found: Bursts, limits: BurstLimits, *, is_fast: bool | None) -> str | None:
    """Return why long waits are no bursts, as a clause; None if they are."""
    turns = found.turns
    if found.most_share > MOST_OF_ONE:
        return "one of them holds most of their time"
    if not (is_fast or found.are_rare or _seems_fast(turns, limits)):
        return "the queue is usually empty, and prefetching more batches does not fill it"
    if found.turns_share > limits.max_turns_share:
        return "the data loader is always too slow"
    if found.mean_ns * turns.wait_ns.size < limits.min_concentration_share * float(turns.wait_ns.sum()):
        return "much of the waiting time is in short waits"
    return "long waits take little time" if found.share < limits.min_share else None


def _seems_fast(turns: LoaderTurns, limits: BurstLimits) -> bool:
    """Whether the queue usually holds a batch: taking it takes little time."""
    return turns.usual_ns <= max(limits.max_usual_share * turns.step_ns, MOST_TAKING_NS)


def loader_turns(steps: Sequence[TimedStep], workers: int) -> LoaderTurns | None:
    """Return the turns of a run; None if none is complete.

    The first step of the run and the first of each epoch are left out, because the queue is empty there.
    """
    plain = [step for step in steps if step.state is StepState.PLAIN and step.index > 0 and not step.loader_start_ns]
    taken: list[float] = []
    turn: list[TimedStep] = []
    for step in plain:
        if turn and step.index != turn[-1].index + 1:
            turn = []
        turn.append(step)
        if len(turn) == max(workers, 1):
            taken.append(sum(one.loader_ns for one in turn) / len(turn))
            turn = []
    if not taken:
        return None
    usual_ns = median(taken)
    wait_ns = np.maximum(np.array(taken) - usual_ns, 0.0)
    rest_ns = float(median(max(step.duration_ns - step.loader_ns, 0) for step in plain))
    return LoaderTurns(wait_ns, rest_ns, usual_ns, fmean(step.duration_ns for step in plain))
