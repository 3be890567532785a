"""Whether a run waits for its loader now and then, and then long, rather than a little all the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from traceadvisor.model.arrays import Float64
from traceadvisor.model.run import StepState, TimedStep


@dataclass(frozen=True, slots=True, eq=False)
class LoaderTurns:
    """Successive undisturbed steps, as many as the loader has workers: each worker delivers once.

    Within a turn one step may wait for all workers and the others for none; that is how workers deliver, and no burst.
    """

    wait_ns: Float64
    """Mean time in the loader of each turn's steps beyond what it takes in the median turn, shape ``(n,)``.

    Taking a batch that is ready takes its time, too, and more of it on a busy machine; that is no wait."""

    step_ns: float
    """Median length of a step without its time in the loader."""


def loader_turns(steps: Sequence[TimedStep], workers: int) -> LoaderTurns | None:
    """The turns of a run; None where not even one is complete.

    The first step of the run and those that begin an epoch are left out: an empty queue is refilled there.
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
