"""Changes of host work that several simulated fixes share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.step_graph import Action, HostTasks, Phase, StepGraph


def is_loading(host: HostTasks) -> Mask:
    """Whether each host task runs inside the data loader."""
    loading: Mask = host.phase == Phase.LOADING
    return loading


def slowed(host: HostTasks, factor: Float64 | float) -> HostTasks:
    """The host tasks with their work and calls multiplied by a factor, or by one factor per task."""
    return replace(host, work_ns=scaled(host.work_ns, factor), call_ns=scaled(host.call_ns, factor))


def work_inside(graph: StepGraph, spans: SpanSet) -> Int64:
    """For each host task, the nanoseconds of its work that lie in some recorded spans.

    The result is the recorded time, limited to the remaining work of the task.
    """
    until_ns = graph.recorded_ns
    inside_ns = spans.measure_until(until_ns) - spans.measure_until(until_ns - graph.host.recorded_work_ns)
    limited_ns: Int64 = np.minimum(inside_ns, graph.host.work_ns)
    return limited_ns


def scaled(durations_ns: Int64, factor: Float64 | float) -> Int64:
    """Durations times a factor, in whole nanoseconds."""
    result: Int64 = np.rint(durations_ns * factor).astype(np.int64)
    return result


def fetches(host: HostTasks) -> tuple[Int64, Int64]:
    """The last host task of each batch fetch, and the host time of each fetch in nanoseconds."""
    loading = is_loading(host)
    last = ~np.append(loading[1:], False)
    ends = np.flatnonzero(loading & last & np.isin(host.action, (Action.NOTHING, Action.FETCH)))
    spent_ns: Int64 = np.cumsum(np.where(loading, host.work_ns + host.call_ns, 0))[ends]
    return ends, np.diff(spent_ns, prepend=0)
