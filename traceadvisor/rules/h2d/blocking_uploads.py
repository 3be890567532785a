"""Copies from pinned memory that the CPU waits for although it need not."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.runtime_calls import blocking_rows
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet


@frozen(eq=False)
class BlockingUploads:
    """Blocking copies and their waits, as rows of the event table."""

    copies: Int64
    waits: Int64
    drained: SpanSet
    """Idle time of the GPU while the CPU launches kernels again after these waits."""


def blocking_uploads(
    observation: Observation, tree: OperatorTree, windows: SpanSet, drained: SpanSet
) -> BlockingUploads:
    """Find copies from pinned memory whose operator waits for the GPU.

    Args:
        observation: the recording.
        tree: its operators.
        windows: only copies that start in these windows count.
        drained: idle time after waits (the category ``idle_sync``).
    """
    trace, launches = observation.trace, observation.launches
    events = trace.events
    pinned = name_mask(trace.names, lambda name: "Pinned" in name)[events.name_id[launches.work_rows]]
    pinned &= (events.kind[launches.work_rows] == Kind.COPY_H2D) & (launches.call_rows != NONE)
    pinned &= windows.contains(events.start_ns[launches.work_rows])
    copies, calls = launches.work_rows[pinned], launches.call_rows[pinned]
    blocking = blocking_rows(trace, launches)
    copying = tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    waiting = tree.enclosing(events.thread[blocking].astype(np.int64), events.start_ns[blocking])
    waits = np.isin(waiting, copying[copying != NONE])
    after = np.searchsorted(events.start_ns[blocking], drained.starts_ns, side="right") - 1
    follows = np.append(waits, False)[after]  # a value, not a flag
    return BlockingUploads(
        copies[np.isin(copying, waiting[waits])],
        blocking[waits],
        SpanSet(drained.starts_ns[follows], drained.ends_ns[follows]),
    )
