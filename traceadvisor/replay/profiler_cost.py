"""CPU time that recording adds to a step at most, by what it recorded."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.replay.step_graph import StepGraph

LARGEST_NS = {Kind.OPERATOR: 2_000, Kind.ANNOTATION: 2_000, Kind.RUNTIME: 1_500}
"""Largest known CPU time to record one event. On CPUs of servers, operators took 0.5 to 2 us, those with input
shapes and memory the most; CUPTI adds up to 1.5 us to a launch."""

LARGEST_CALL_NS = 1_000
"""The same of a call of a Python function: 0.45 to 1 us."""


def largest_cost_ns(graph: StepGraph, observation: Observation) -> Int64:
    """Return the largest CPU time that recording may have added to each host task; 0 for tasks without time."""
    events, calls = observation.trace.events, observation.trace.python_calls
    cost_ns = np.zeros(len(graph.host), dtype=np.int64)
    for kind, each_ns in LARGEST_NS.items():
        cost_ns += each_ns * begun_in(graph, events.start_ns[events.rows(kind)])
    cost_ns += LARGEST_CALL_NS * begun_in(graph, calls.start_ns[calls.thread == observation.thread])
    return cost_ns


def begun_in(graph: StepGraph, starts_ns: Int64) -> Int64:
    """Count the starts in each task's work and call; 0 for tasks without time.

    ``starts_ns``: ascending, shape ``(k,)``.
    """
    since_ns = graph.recorded_ns - graph.host.recorded_work_ns
    before, until = (np.searchsorted(starts_ns, at_ns, side="right") for at_ns in (since_ns, graph.recorded_ns))
    takes_time = graph.host.work_ns + graph.host.call_ns > 0
    count: Int64 = np.where(takes_time, until - before, 0)
    return count
