"""The recorded steps without the profiler's overhead on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, rows_with_prefix
from traceadvisor.analysis.steps.run_timing import RunTiming
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.replay.fixes.edit_host import is_loading, scaled
from traceadvisor.replay.gate import MOST_ERROR_SHARE
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.step_graph import StepGraph

RECORDED_ON_HOST = (Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME)
"""Events that cost the host time to record."""


def undisturbed(graph: StepGraph, observation: Observation, steps: Sequence[Step], timing: RunTiming) -> StepGraph:
    """Return the graph with host work as without the profiler; unchanged if that is unknown.

    The run's step times show how much longer recorded steps take, and how much of that is in the loader. If the
    replayed step does not shrink by the time removed from the host, the device hides some of the overhead, and the
    difference between steps does not show its size.

    Args:
        graph: the tasks of the recorded steps.
        observation: the recording.
        steps: the steps that the graph was built from.
        timing: the steps of the run.
    """
    added_ns = _added(graph, observation, steps, timing)
    host = graph.host
    of_call_ns = np.minimum(np.maximum(added_ns - host.work_ns, 0), host.call_ns)
    of_work_ns = np.minimum(added_ns, host.work_ns)
    taken_ns = int((of_call_ns + of_work_ns).sum()) / len(steps)
    if not taken_ns:
        return graph
    result = replace(graph, host=replace(host, work_ns=host.work_ns - of_work_ns, call_ns=host.call_ns - of_call_ns))
    recorded_ns = simulate(graph).interior_mean_ns()
    shown_ns = recorded_ns - simulate(result).interior_mean_ns()
    return result if abs(taken_ns - shown_ns) <= MOST_ERROR_SHARE * recorded_ns else graph


def _added(graph: StepGraph, observation: Observation, steps: Sequence[Step], timing: RunTiming) -> Int64:
    """Return the profiler's overhead on each task; zero if recorded steps were not longer.

    With loader workers, time in the loader is a wait, which may shrink because of overhead elsewhere. With a device,
    every recorded event costs the same. Without a device, operators compute on the host, and the profiler's own records
    scatter memory: new activations and gradients lie in fresh pages, so the forward and backward pass take longer.
    """
    excess_ns, excess_loading_ns = timing.excess_ns
    own_loader = observation.loader is not None and observation.loader.in_training_process
    if own_loader:
        excess_loading_ns = min(max(excess_loading_ns, 0.0), max(excess_ns, 0.0))
    loading = is_loading(graph.host)
    weight = _events_before(graph, observation) if observation.has_device else _passes_ns(graph, observation, steps)
    added_ns = _spread((excess_ns - excess_loading_ns) * len(steps), np.where(loading, 0, weight))
    if own_loader:
        added_ns += _spread(excess_loading_ns * len(steps), np.where(loading, graph.host.work_ns, 0))
    return added_ns


def _events_before(graph: StepGraph, observation: Observation) -> Int64:
    """Count the recorded events in each task's work and call; 0 for tasks without time."""
    events = observation.trace.events
    starts_ns = events.start_ns[events.rows(*RECORDED_ON_HOST)]
    since_ns = graph.recorded_ns - graph.host.recorded_work_ns
    before, until = (np.searchsorted(starts_ns, at_ns, side="right") for at_ns in (since_ns, graph.recorded_ns))
    takes_time = graph.host.work_ns + graph.host.call_ns > 0
    return np.where(takes_time, until - before, 0)


def _passes_ns(graph: StepGraph, observation: Observation, steps: Sequence[Step]) -> Int64:
    """Return the work of tasks that begin before a step's backward pass ends; of all tasks without one."""
    backward = observation.trace.events.spans(rows_with_prefix(observation.trace, Kind.OPERATOR, BACKWARD_PREFIX))
    ends_ns = np.array([_last_end(backward, step) for step in steps], dtype=np.int64)
    begun_ns = graph.recorded_ns - graph.host.recorded_work_ns
    return np.where(begun_ns < ends_ns[graph.host.step], graph.host.work_ns, 0)


def _last_end(spans: SpanSet, step: Step) -> int:
    within = spans & SpanSet.of((step.host_start_ns, step.host_end_ns))
    return int(within.ends_ns[-1]) if within else step.host_end_ns


def _spread(excess_ns: float, weight: Int64) -> Int64:
    """Spread time over tasks by weight; zero if the time is negative."""
    return scaled(weight, max(excess_ns, 0.0) / max(int(weight.sum()), 1))
