"""CPU time that recording adds to a step at most, by what it recorded."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Option
from traceadvisor.replay.fixes.host_work import scaled
from traceadvisor.replay.step_graph import StepGraph

LARGEST_NS = {Kind.OPERATOR: 2_000, Kind.ANNOTATION: 2_000, Kind.RUNTIME: 1_500}
"""Largest known CPU time to record one event. On CPUs of servers, operators took 0.5 to 2 us, those with input
shapes and memory the most; CUPTI adds up to 1.5 us to a launch."""

LARGEST_CALL_NS = 1_000
"""The same of a call of a Python function: 0.45 to 1 us."""

MOST_CALLS = 11
"""Most calls of Python functions per operator, where they were recorded but are missing in the file: 1 to 11 in ten
public recordings with stacks."""


def largest_cost_ns(graph: StepGraph, observation: Observation) -> Int64:
    """Return the largest CPU time that recording may have added to each host task; 0 for tasks without time."""
    events, calls = observation.trace.events, observation.trace.python_calls
    cost_ns = np.zeros(len(graph.host), dtype=np.int64)
    for kind, each_ns in LARGEST_NS.items():
        cost_ns += each_ns * graph.begun(events.start_ns[events.rows(kind)])
    cost_ns += LARGEST_CALL_NS * graph.begun(calls.start_ns[calls.thread == observation.thread])
    return cost_ns


def missing_calls_ns(graph: StepGraph, observation: Observation) -> Int64 | None:
    """Return the same of calls that were recorded and that the file lacks; None if it lacks none.

    They lie outside of operators.
    """
    if Option.STACKS not in observation.trace.options or observation.trace.python_calls.start_ns.size:
        return None
    events, until_ns = observation.trace.events, graph.recorded_ns
    operators, recorded_ns = events.rows(Kind.OPERATOR), graph.host.recorded_work_ns
    spans = events.spans(operators)
    outside_ns = recorded_ns - spans.measure_in(until_ns - recorded_ns, until_ns)
    all_ns = MOST_CALLS * LARGEST_CALL_NS * int(graph.begun(events.start_ns[operators]).sum())
    return scaled(outside_ns, min(all_ns / max(int(outside_ns.sum()), 1), 1.0))
