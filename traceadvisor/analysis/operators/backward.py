"""Backward passes that other threads run while the training thread waits inside ``backward()``."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.innermost import first_come
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.trace import Trace


def backward_passes(trace: Trace, training: int, nodes: Int64) -> ThreadSpans:
    """Return the time of backward passes on other threads than the training thread, disjoint and in order.

    From one node to the next, the thread of the next node runs, if the training thread begins nothing in between.

    Args:
        trace: the recording.
        training: the training thread.
        nodes: rows of the nodes of backward passes, ascending.
    """
    events = trace.events
    nodes = nodes[events.thread[nodes] != training]
    starts, runs = first_come(events.start_ns[nodes], events.end_ns[nodes])
    ends = events.end_ns[nodes[runs]]
    host = events.rows(Kind.OPERATOR, Kind.RUNTIME, Kind.ANNOTATION)
    begun_ns = events.start_ns[host[events.thread[host] == training]]
    before = np.append(starts[:1], ends[:-1])
    goes_on = np.searchsorted(begun_ns, before) == np.searchsorted(begun_ns, starts)
    return ThreadSpans(events.thread[nodes[runs]], np.where(goes_on, before, starts), ends)
