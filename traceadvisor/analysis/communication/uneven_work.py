"""The work that the ranks of a job have in the same step, by the shapes of what they multiply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np

from traceadvisor.analysis.arithmetic.matrix_work import MatrixWork
from traceadvisor.analysis.communication.collectives import step_positions
from traceadvisor.frozen import frozen
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import FEWEST_STEPS
from traceadvisor.model.ranks import RankFigures
from traceadvisor.model.steps import Step
from traceadvisor.model.trace import Trace
from traceadvisor.statistics import NORMAL_95


def step_work(trace: Trace, calls: MatrixWork, steps: Sequence[Step]) -> Mapping[int, float]:
    """The floating point operations of each step, by its number; empty if the work of a call in them is unknown."""
    position = step_positions(trace.events, calls.rows, steps)
    is_inside = position != NONE
    flops = np.bincount(position[is_inside], calls.flops[is_inside], len(steps))
    if not is_inside.any() or not np.isfinite(flops).all():
        return {}
    return {step.index: float(one) for step, one in zip(steps, flops, strict=True)}


@frozen
class UnevenWork:
    """By how much the work of a step is larger on the rank that has most of it; shares of the ranks' mean work."""

    excess_share: float
    """Mean over the steps, 0 if all ranks have the same work in each."""

    error_share: float
    """Half width of its 95% interval, with steps as independent samples."""

    step_count: int


def uneven_work(ranks: Sequence[RankFigures]) -> UnevenWork | None:
    """Compare the work of ranks step by step; None if it is unknown, or if they do not meet in each step."""
    steps = sorted(set.intersection(*(set(one.work) for one in ranks)))
    if len(steps) < FEWEST_STEPS or not set(steps) <= set(ranks[0].calls.step.tolist()):
        return None
    flops = np.array([[one.work[step] for step in steps] for one in ranks])
    mean = flops.mean(axis=0)
    if not mean.any():
        return None
    excess = (flops.max(axis=0) - mean) / mean.mean()
    error = NORMAL_95 * float(excess.std(ddof=1)) / sqrt(len(steps))
    return UnevenWork(float(excess.mean()), error, len(steps))
