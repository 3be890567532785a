"""The time in which the training thread takes a batch that a worker has finished.

The batch crosses a queue between processes: the thread receives it, rebuilds its tensors in shared memory, and requests
the next one. Other workers, or a faster data set, do not shorten this. A loop that waits for a batch waits until that
batch is finished. So if no worker finished a batch during a fetch, the batch was ready, and all of the fetch was this.
A large batch of Python objects may still be on its way: more workers do not shorten that either.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.model.run import StepState, TimedBatch, TimedStep
from traceadvisor.model.steps import Step

FEWEST_READY = 8
"""Steps with a batch that was ready. With fewer, the time is unknown: a thread that waited takes longer, because it has
to wake up."""

MOST_MISSING_SHARE = 0.1
"""Largest difference between batches taken and batches made in the same time, besides those in the queue. If it is
larger, some batches were not timed."""

FIRST_SHARE = 0.1
"""Share of the step before its fetch, below which the step begins with it: the profiler begins the step meanwhile."""


def handover_ns(steps: Sequence[TimedStep], batches: Sequence[TimedBatch], prefetch: int) -> float | None:
    """Return the median time to receive a batch that is ready; None if unknown.

    Args:
        steps: the timed steps of a loop that begins each step with its fetch.
        batches: the timed batches of its loader.
        prefetch: batches that each worker prepares ahead.
    """
    made = [batch for batch in batches if batch.worker is not None]
    begun_ns = _starts_ns(steps)
    counted = np.array([_counts(step) for step in steps], dtype=np.bool_)
    if not made or int(counted.sum()) < FEWEST_READY:
        return None
    asked_ns = begun_ns[counted]
    took_ns = np.array([step.loader_ns for step in steps], dtype=np.int64)[counted]
    ends_ns = np.sort(np.array([batch.start_ns + batch.duration_ns for batch in made], dtype=np.int64))
    between = (begun_ns >= asked_ns[0]) & (begun_ns < asked_ns[-1])
    taken = sum(step.fetches for step, is_between in zip(steps, between.tolist(), strict=True) if is_between)
    ended = int(np.diff(np.searchsorted(ends_ns, asked_ns[[0, -1]]))[0])
    ahead = prefetch * len({batch.worker for batch in made})
    if abs(ended - taken) > MOST_MISSING_SHARE * taken + ahead:
        return None
    is_ready = np.searchsorted(ends_ns, asked_ns) == np.searchsorted(ends_ns, asked_ns + took_ns)
    return float(np.median(took_ns[is_ready])) if int(is_ready.sum()) >= FEWEST_READY else None


def _counts(step: TimedStep) -> bool:
    """Whether the step is undisturbed and takes one batch, which begins no epoch."""
    return step.state is StepState.PLAIN and step.index > 0 and step.fetches == 1 and not step.loader_start_ns


def _starts_ns(steps: Sequence[TimedStep]) -> Int64:
    """The start of each step on the wall clock as it was when the capture began, which the batches have, too."""
    offset_ns = next((step.start_ns - step.clock_ns for step in steps if step.clock_ns is not None), 0)
    starts = (step.start_ns if step.clock_ns is None else step.clock_ns + offset_ns for step in steps)
    return np.fromiter(starts, dtype=np.int64, count=len(steps))


def begin_with_fetch(steps: Sequence[Step], fetched_ns: Int64) -> bool:
    """Return whether steps of a recording begin with the fetch of their batch; ``fetched_ns``: starts of fetches."""
    shares = []
    for step in steps:
        first = int(np.searchsorted(fetched_ns, step.host_start_ns))
        if first < fetched_ns.size:
            shares.append((int(fetched_ns[first]) - step.host_start_ns) / max(step.duration_ns, 1))
    return bool(shares) and median(shares) < FIRST_SHARE
