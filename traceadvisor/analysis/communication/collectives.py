"""Collectives of a rank: their rows, message sizes and times."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import name_mask, rows_named
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import EXCHANGE, NONE, Kind
from traceadvisor.model.ranks import CollectiveCalls
from traceadvisor.model.steps import StepTable
from traceadvisor.model.trace import Trace

_ON_HOST = ("gloo:", "nccl:", "rccl:", "mpi:", "ucc:", "c10d:")


def host_collective_rows(trace: Trace) -> Int64:
    """Return the rows of host-side collectives: they enqueue device work, or do the work themselves (Gloo)."""
    return rows_named(trace, Kind.ANNOTATION, lambda name: name.lower().startswith(_ON_HOST))


def message_sizes(trace: Trace, launches: Launches, tree: OperatorTree) -> tuple[Int64, Int64]:
    """Return device collectives with a recorded message size.

    Returns:
        Their rows of the event table and the bytes that this rank sent in each, both of shape ``(n,)``.
    """
    events = trace.events
    is_collective = (events.kind[launches.work_rows] == Kind.COLLECTIVE) & (launches.call_rows != NONE)
    rows, calls = launches.work_rows[is_collective], launches.call_rows[is_collective]
    is_exchange = name_mask(trace.names, lambda name: name == EXCHANGE)[events.name_id[tree.rows]]
    around = tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    exchange = np.append(tree.nearest(is_exchange), NONE)[around]
    sent_bytes = np.where(exchange == NONE, NONE, np.append(events.byte_count[tree.rows], NONE)[exchange])
    known = sent_bytes != NONE
    return rows[known], sent_bytes[known]


def collective_calls(observation: Observation, table: StepTable) -> CollectiveCalls:
    """Return the collectives of the kept steps: on the device, or on the host if there is no device activity."""
    trace, events = observation.trace, observation.trace.events
    if observation.has_device:
        work = observation.launches.work_rows
        rows = work[events.kind[work] == Kind.COLLECTIVE]
    else:
        rows = host_collective_rows(trace)
    kept = table.kept
    starts = np.array([step.start_ns for step in kept], dtype=np.int64)
    ends = np.array([step.end_ns for step in kept], dtype=np.int64)
    position = np.searchsorted(starts, events.start_ns[rows], side="right") - 1
    inside = (position >= 0) & (events.start_ns[rows] < np.append(ends, 0)[position])
    numbers = np.array([step.index for step in kept], dtype=np.int64)
    rows = rows[inside]
    return CollectiveCalls(numbers[position[inside]], events.start_ns[rows], events.duration_ns[rows])
