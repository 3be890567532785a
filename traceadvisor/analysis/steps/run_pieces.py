"""The steps of a run in their places, and pieces of their time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

import numpy as np

from traceadvisor.analysis.steps.clocks import pauses
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.loop_starts import ends_with_start
from traceadvisor.model.run import Run, StepState, TimedStep
from traceadvisor.model.run_time import RunCause, RunPart

_AFTER_RECORDER = frozenset({StepState.WARMUP, StepState.SETTLING, StepState.STALLED})
"""States of steps right before which the profiler may have started or exported."""


@frozen(eq=False)
class Pieces:
    """Times of one part within some other times, which may be longer: arrays of one length."""

    part: RunPart
    cause: RunCause | None
    start_ns: Int64
    end_ns: Int64
    ns: Int64

    @property
    def total_ns(self) -> int:
        """The sum."""
        return int(self.ns.sum())


@frozen(eq=False)
class StepRows:
    """Steps in their places, without the time that an earlier one covers: arrays of one length."""

    steps: Sequence[TimedStep]
    start_ns: Int64
    length_ns: Int64
    gap_ns: Int64
    """Time since the step before."""

    paused_ns: Int64
    loader_start_ns: Int64
    """Time to start the loop over the training loader, within this step."""

    by_clock: bool
    """Whether a monotonic clock places them."""

    is_training: Mask

    @property
    def end_ns(self) -> Int64:
        """The end of each."""
        return self.start_ns + self.length_ns

    def has(self, *states: StepState) -> Mask:
        """Which steps are in one of some states."""
        return np.array([step.state in states for step in self.steps], dtype=np.bool_)

    @property
    def has_fetches(self) -> Mask:
        """Which steps took batches from the training loader."""
        return numbers(step.fetches for step in self.steps) > 0

    def pieces(self, part: RunPart, cause: RunCause | None, ns: Int64) -> Pieces:
        """A part of each step."""
        return Pieces(part, cause, self.start_ns, self.end_ns, ns)


def numbers(values: Iterable[int | None]) -> Int64:
    """Return an array of integers, with 0 for None."""
    return np.array([value or 0 for value in values], dtype=np.int64)


def step_rows(run: Run) -> StepRows:
    """Return the steps of a run, in order, each after the end of the one before."""
    steps = sorted(run.steps, key=attrgetter("index"))
    by_clock = all(step.clock_ns is not None for step in steps)
    wall_ns, length_ns = (numbers(map(attrgetter(name), steps)) for name in ("start_ns", "duration_ns"))
    given_ns = numbers(step.clock_ns for step in steps) if by_clock else wall_ns
    before_ns = np.cumsum(length_ns) - length_ns  # a duration is right on any clock
    start_ns = np.maximum.accumulate(given_ns - before_ns) + before_ns
    gap_ns = np.diff(start_ns, prepend=start_ns[:1]) - np.concatenate(([0], length_ns[:-1]))
    if not by_clock:  # nothing is known to happen in most gaps, so they are jumps of the clock
        gap_ns[[step.state not in _AFTER_RECORDER for step in steps]] = 0
    paused_ns = np.zeros_like(length_ns)
    for first, last in pauses(run):
        paused_ns += np.maximum(np.minimum(wall_ns + length_ns, last) - np.maximum(wall_ns, first), 0)
    is_training = np.array([step.state is not StepState.OTHER for step in steps], dtype=np.bool_)
    paused_ns, begun_ns = np.minimum(paused_ns, length_ns), _starts_inside(steps)
    return StepRows(steps, start_ns, length_ns, gap_ns, paused_ns, begun_ns, by_clock, is_training)


def _starts_inside(steps: Sequence[TimedStep]) -> Int64:
    """The time within each step to start a loop over the training loader.

    The loop is started before its first fetch, where the step before ends: in that step if it is validation, which
    lasts until that fetch, or if a ``break`` ended its loop. Otherwise the fetch that found no further batch has begun
    the new step.
    """
    inside, broken = np.zeros(len(steps), dtype=np.int64), ends_with_start(steps)
    for place, step in enumerate(steps):
        if not step.loader_start_ns or step.state is StepState.OTHER or not place:
            continue
        before = steps[place - 1].state is StepState.OTHER or steps[place - 1].index in broken
        inside[place - 1 if before else place] += step.loader_start_ns
    return inside
