"""Whether GPU memory grows from step to step, or over a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.model.telemetry import DeviceColumn, Series
from traceadvisor.model.trace import Trace

RETRIES = "times that torch freed its cache to allocate again"

PARTS = 4
"""Parts of a run. Growth from each part to the next is a trend; growth in one part is a single event."""


@frozen
class StepGrowth:
    """Memory held by tensors at the ends of successive steps."""

    steps: int
    rising_share: float
    """Share of the successive pairs in which the later step holds more."""

    bytes_per_step: float
    """Median growth from one end to the next."""

    first_bytes: int
    last_bytes: int


def growth_by_step(trace: Trace, device: int, steps: Sequence[Step]) -> StepGrowth | None:
    """Return the growth over successive kept steps, from allocator events; None if there are too few of either."""
    memory = trace.memory
    mine = np.flatnonzero(memory.device == device)
    if not mine.size:
        return None
    times_ns, held = memory.time_ns[mine], memory.allocated_bytes[mine]
    at_end = np.searchsorted(times_ns, [step.host_end_ns for step in steps], side="left") - 1
    if len(steps) < 2 or at_end[0] < 0:
        return None
    ends = held[at_end].tolist()
    rises = [
        later - earlier
        for (before, earlier), (after, later) in pairwise(zip(steps, ends, strict=True))
        if after.index == before.index + 1
    ]
    if not rises:
        return None
    rising = sum(rise > 0 for rise in rises) / len(rises)
    return StepGrowth(len(steps), rising, float(np.median(rises)), ends[0], ends[-1])


def growth_over_run(
    series: Series,
    when: SpanSet,
    column: str = DeviceColumn.MEMORY_USED_BYTES,
    steps: Sequence[TimedStep] = (),
) -> tuple[float, ...] | None:
    """Return the mean held memory in each quarter of some time, from samples of the GPU or of processes.

    None if it does not grow from each quarter to the next, or if a quarter has no samples. What the profiler takes in
    those of the steps that it disturbs, and keeps afterwards, is no growth.
    """
    figures = series.figures.get(column)
    if figures is None:
        return None
    is_known = when.contains(series.time_ns) & np.isfinite(figures)
    held, times_ns = figures[is_known], series.time_ns[is_known]
    if held.size < PARTS:
        return None
    disturbed_ns = np.array([step.start_ns for step in steps if step.state is not StepState.PLAIN], dtype=np.int64)
    rises = np.where(np.diff(np.searchsorted(np.sort(disturbed_ns), times_ns)) > 0, 0.0, np.diff(held))
    own = held[0] + np.concatenate(([0.0], np.cumsum(rises)))
    means = [float(part.mean()) for part in np.array_split(own, PARTS)]
    return tuple(means) if all(before < after for before, after in pairwise(means)) else None


def is_steady(means: Sequence[float], least_share: float) -> bool:
    """Whether the last growth is at least ``least_share`` of the mean growth: memory that fills once levels off."""
    mean_growth = (means[-1] - means[0]) / (len(means) - 1)
    return means[-1] - means[-2] >= least_share * mean_growth
