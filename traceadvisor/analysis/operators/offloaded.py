"""Copies of weights to the GPU: of an optimizer that runs on the CPU."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace

LEAST_BYTES = 65_536
"""Smaller copies are of losses, metrics and lengths in both directions."""


def weight_uploads(trace: Trace, launches: Launches) -> Int64:
    """Return the copies to the GPU that are of weights, not of batches.

    They are launched by the optimizer; or they follow copies of as many bytes from the GPU, which are of gradients, and
    end a step of the optimizer: they come before the next work of the GPU.
    """
    events, rows, calls = trace.events, launches.work_rows, launches.call_rows
    steps = optimizer_steps(trace).rows
    uploads = events.kind[rows] == Kind.COPY_H2D
    if not steps.size:
        return rows[:0]
    known = calls != NONE
    in_step = np.zeros(rows.size, dtype=np.bool_)
    in_step[known] = ThreadSpans.of(events, steps).hold(events.thread[calls[known]], events.start_ns[calls[known]])
    downloads = (events.kind[rows] == Kind.COPY_D2H) & (events.byte_count[rows] >= LEAST_BYTES)
    is_found = in_step
    if downloads.any():
        returned = np.isin(events.byte_count[rows], events.byte_count[rows[downloads]])
        returned &= events.byte_count[rows] >= LEAST_BYTES
        is_found |= returned & _follows_step(trace, rows, steps)
    found: Int64 = rows[uploads & is_found]
    return found


def _follows_step(trace: Trace, rows: Int64, steps: Int64) -> np.typing.NDArray[np.bool_]:
    """Return whether no kernel began between the last step of an optimizer and each GPU operation."""
    events = trace.events
    ends = np.sort(events.end_ns[steps])
    before = np.searchsorted(ends, events.end_ns[rows], side="right") - 1
    since = np.where(before < 0, np.iinfo(np.int64).max, ends[before])
    kernels = np.sort(events.start_ns[rows[events.kind[rows] == Kind.KERNEL]])
    between = np.searchsorted(kernels, events.start_ns[rows]) - np.searchsorted(kernels, since)
    found: np.typing.NDArray[np.bool_] = (before >= 0) & (between <= 0)
    return found
