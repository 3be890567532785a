"""Edits of host work that several what-ifs share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.step_graph import Action, HostTasks, Phase, StepGraph


def is_loading(host: HostTasks) -> Mask:
    """Tasks whose work is done inside the data loader."""
    loading: Mask = host.phase == Phase.LOADING
    return loading


def slowed(host: HostTasks, factor: Float64 | float) -> HostTasks:
    """Work and calls that take so many times as long; one factor, or one a task."""
    return replace(host, work_ns=scaled(host.work_ns, factor), call_ns=scaled(host.call_ns, factor))


def work_inside(graph: StepGraph, spans: SpanSet) -> Int64:
    """For each host task, its work at some recorded instants, since the trace's first event; nanoseconds.

    It takes what it took when it was recorded, and no more than is left of the task's work.
    """
    until_ns = graph.recorded_ns
    inside_ns = spans.measure_until(until_ns) - spans.measure_until(until_ns - graph.host.recorded_work_ns)
    no_more_ns: Int64 = np.minimum(inside_ns, graph.host.work_ns)
    return no_more_ns


def scaled(durations_ns: Int64, factor: Float64 | float) -> Int64:
    """Durations times a factor, in whole nanoseconds."""
    result: Int64 = np.rint(durations_ns * factor).astype(np.int64)
    return result


def fetches(host: HostTasks) -> tuple[Int64, Int64]:
    """The task that ends each fetch of a batch, and the host's time in each fetch."""
    loading = is_loading(host)
    last = ~np.append(loading[1:], False)
    ends = np.flatnonzero(loading & last & np.isin(host.action, (Action.NOTHING, Action.FETCH)))
    spent_ns: Int64 = np.cumsum(np.where(loading, host.work_ns + host.call_ns, 0))[ends]
    return ends, np.diff(spent_ns, prepend=0)
