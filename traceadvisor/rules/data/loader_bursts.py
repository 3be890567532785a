"""Whether a run waits for its data loader rarely but long, or often but briefly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from traceadvisor.model.arrays import Float64
from traceadvisor.model.run import StepState, TimedStep


@dataclass(frozen=True, slots=True, eq=False)
class LoaderTurns:
    """Turns of a run: successive undisturbed steps, one per worker, so that each worker delivers one batch.

    Within a turn, one step may wait for all workers and the other steps for none. This is normal and not a burst.
    """

    wait_ns: Float64
    """Mean time in the data loader per step of each turn, minus that of the median turn, shape ``(n,)``.

    Taking a batch that is ready also takes time, more on a busy machine. This time is not a wait."""

    step_ns: float
    """Median step time without the time in the data loader."""


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
    wait_ns = np.maximum(np.array(taken) - median(taken), 0.0)
    return LoaderTurns(wait_ns, float(median(max(step.duration_ns - step.loader_ns, 0) for step in plain)))
