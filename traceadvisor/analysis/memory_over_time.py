"""Device memory over the recorded steps, in few enough instants to be drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.step_memory import MemoryOverTime
from traceadvisor.model.steps import Step
from traceadvisor.model.trace import Trace

MOST_INSTANTS = 400
"""Two for each slot of time: as many as a picture can show, and little beside the rest of a report."""


def memory_over_time(trace: Trace, device: int | None, steps: Sequence[Step]) -> MemoryOverTime | None:
    """What one device's allocator holds, from the first recorded step to the last; None where that was not recorded."""
    memory = trace.memory
    if device is None or not steps:
        return None
    start_ns, end_ns = steps[0].host_start_ns, max(step.host_end_ns for step in steps)
    mine = (memory.device == device) & (memory.time_ns >= start_ns) & (memory.time_ns < end_ns)
    rows = _telling(np.flatnonzero(mine), memory.time_ns, memory.allocated_bytes)
    if rows.size < 2:  # a line has two ends
        return None
    reserved = memory.reserved_bytes[rows]
    return MemoryOverTime(
        memory.time_ns[rows], memory.allocated_bytes[rows], None if (reserved == NONE).any() else reserved
    )


def _telling(rows: Int64, time_ns: Int64, held_bytes: Int64) -> Int64:
    """The rows with the least and the most of each slot of time, and the first and the last of all."""
    if rows.size <= MOST_INSTANTS:
        return rows
    edges_ns = np.linspace(time_ns[rows[0]], time_ns[rows[-1]], MOST_INSTANTS // 2 + 1)[1:-1]
    slots = [slot for slot in np.split(rows, np.searchsorted(time_ns[rows], edges_ns)) if slot.size]
    ends = [int(rows[0]), int(rows[-1])]
    kept = [int(slot[pick(held_bytes[slot])]) for slot in slots for pick in (np.argmin, np.argmax)]
    return np.unique(np.array(ends + kept, dtype=np.int64))
