"""The constants of a recording, measured as medians over all of it."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.names import name_mask
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace
from traceadvisor.replay.recorded_calls import Waits, Work
from traceadvisor.replay.step_graph import Constants

QUEUE_DEPTH = 1022
"""Launches in flight on a stream at which a CUDA launch call stalls.

Each of the long launch calls of a public recording of a V100 (torch, nanosecond time stamps) finds so many; that every
stream has a queue of its own: https://forums.developer.nvidia.com/t/68937. Recordings of HIP show no such limit.
"""

USUAL_LATENCY_NS, USUAL_GAP_NS, USUAL_CALL_NS, USUAL_WAIT_NS = 2_000, 1_000, 5_000, 7_000
"""What public recordings show, for a recording that has no case of its own."""

_QUEUED_NS = 20_000
"""A kernel whose launch call returned this long before the one ahead of it ended was surely queued."""

_LONGEST_LATENCY_NS = 100_000
"""What starts later than this after its launch waits for something; public recordings show latencies up to 40 us."""


def measure(trace: Trace, work: Work, after: Int64, waits: Waits) -> Constants:
    """Medians over the recording.

    Args:
        trace: the recording.
        work: its device work.
        after: for each of it, what it waits for on another stream; such work tells neither a latency nor a gap.
        waits: the calls that wait for it.
    """
    is_kernel = trace.events.kind[work.row] == Kind.KERNEL
    latency_ns = work.start_ns - work.call_end_ns
    dry = (after == NONE) & (work.previous_end_ns < work.call_start_ns) & (latency_ns < _LONGEST_LATENCY_NS)
    queued = is_kernel & (after == NONE) & (work.previous_end_ns > work.call_end_ns + _QUEUED_NS)
    is_hip = name_mask(trace.names, lambda name: name.startswith("hip"))[trace.events.name_id[work.call_row]]
    is_free = work.in_flight() < QUEUE_DEPTH
    return Constants(
        launch_latency_ns=_median(latency_ns[dry & is_kernel], _median(latency_ns[dry], USUAL_LATENCY_NS)),
        queued_gap_ns=_median((work.start_ns - work.previous_end_ns)[queued], USUAL_GAP_NS),
        launch_call_ns=_median((work.call_end_ns - work.call_start_ns)[is_kernel & is_free], USUAL_CALL_NS),
        wait_call_ns=_median(waits.own_ns[~waits.is_free], USUAL_WAIT_NS),
        queue_depth=None if is_hip.any() else QUEUE_DEPTH,
    )


def _median(values: Int64, usual_ns: int) -> int:
    return max(int(np.median(values)), 0) if values.size else usual_ns
