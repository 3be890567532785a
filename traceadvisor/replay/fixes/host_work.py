"""Simulates a step without some of its host work."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Float64, Int64, Mask, among, one_of
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.waits import WithoutWaits
from traceadvisor.replay.step_graph import Action, HostTasks, Phase, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

REMOVED_SHARE = {Scenario.LOW: 0.5, Scenario.EXPECTED: 0.9, Scenario.HIGH: 1.0}
"""Removed share of the work; assumptions.

If the work runs every tenth step, a tenth of it remains. If it moves to another thread of the same interpreter, both
threads take turns, and half of it may remain.
"""


FREED_SHARE = 0.07
"""With the log or the checkpoint of every step gone, the rest of a training on a CPU took 3% and 7% less time
(``benchmarks/validation``)."""


def removed_share(scenario: Scenario, *, is_place: bool) -> float:
    """Return the share of some work that its fix removes; of a place, all is expected: the report states its time."""
    return 1.0 if is_place and scenario is Scenario.EXPECTED else REMOVED_SHARE[scenario]


@frozen(eq=False)
class WithoutHostWork(Edit):
    """Some host work runs less often or elsewhere."""

    spans: SpanSet
    """Recorded time of this work, in nanoseconds since the first event of the trace."""

    is_place: bool = False
    """Whether no change of this work is known to save any, so that all of its time is expected."""

    changes_device: ClassVar = False
    freed_share: ClassVar = FREED_SHARE

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Remove a share of the work in the spans. Calls keep their time."""
        removed_ns = scaled(work_inside(graph, self.spans, scenario), removed_share(scenario, is_place=self.is_place))
        return replace(graph, host=replace(graph.host, work_ns=graph.host.work_ns - removed_ns))


def is_loading(host: HostTasks) -> Mask:
    """Whether each host task runs inside the data loader."""
    loading: Mask = host.phase == Phase.LOADING
    return loading


def slowed(host: HostTasks, factor: Float64 | float) -> HostTasks:
    """The host tasks with their work and calls multiplied by a factor, or by one factor per task."""
    return replace(host, work_ns=scaled(host.work_ns, factor), call_ns=scaled(host.call_ns, factor))


def work_inside(graph: StepGraph, spans: SpanSet, scenario: Scenario) -> Int64:
    """For each host task, the nanoseconds of its work that lie in some recorded spans, at most what is left of it.

    The profiler's time in a task lies inside as far as possible for the lowest saving, outside for the highest one. It
    is expected where the events are that it belongs to, else in proportion to time.
    """
    host, inside_ns = graph.host, recorded_inside(graph, spans)
    added_ns = graph.once(_added, host.recorded_work_ns, host.unprofiled_work_ns)
    if scenario is not Scenario.HIGH and added_ns.any():
        share = 1.0 if scenario is Scenario.LOW else _part_inside(graph, spans, inside_ns)
        inside_ns = np.maximum(inside_ns - scaled(added_ns, share), 0)
    limited_ns: Int64 = np.minimum(inside_ns, host.work_ns)
    return limited_ns


def _added(recorded_work_ns: Int64, unprofiled_work_ns: Int64) -> Int64:
    """The profiler's time in each host task."""
    added_ns: Int64 = np.maximum(recorded_work_ns - unprofiled_work_ns, 0)
    return added_ns


def _part_inside(graph: StepGraph, spans: SpanSet, inside_ns: Int64) -> Float64:
    """The share of each task's events that begin in some spans; where no event is, the share of its time there."""
    begun = graph.begun(graph.events_ns)
    begun_inside = graph.begun(graph.events_ns[spans.contains(graph.events_ns)])
    share: Float64 = np.where(
        begun > 0, begun_inside / np.maximum(begun, 1), inside_ns / np.maximum(graph.host.recorded_work_ns, 1)
    )
    return share


def recorded_inside(graph: StepGraph, spans: SpanSet) -> Int64:
    """For each host task, the nanoseconds of its recorded work in some recorded spans, also where it only waits now."""
    return graph.once(_recorded_inside, graph.recorded_ns, graph.host.recorded_work_ns, spans)


def _recorded_inside(until_ns: Int64, work_ns: Int64, spans: SpanSet) -> Int64:
    return spans.measure_in(until_ns - work_ns, until_ns)


def scaled(durations_ns: Int64, factor: Float64 | float) -> Int64:
    """Durations times a factor, in whole nanoseconds."""
    result: Int64 = np.rint(durations_ns * factor).astype(np.int64)
    return result


def fetches(host: HostTasks) -> tuple[Int64, Int64]:
    """The last host task of each batch fetch, and the host time of each fetch in nanoseconds."""
    loading = is_loading(host)
    last = ~np.concatenate((loading[1:], [False]))
    ends = (loading & last & one_of(host.action, Action.NOTHING, Action.FETCH)).nonzero()[0]
    spent_ns: Int64 = np.where(loading, host.work_ns + host.call_ns, 0).cumsum()[ends]
    return ends, np.diff(np.concatenate(([0], spent_ns)))


@frozen(eq=False)
class CachedMemory(Edit):
    """Memory comes from PyTorch's caching allocator: no call allocates from the driver or frees to it."""

    calls: SpanSet
    """When the host was inside such calls, in nanoseconds since the first event of the trace."""

    rows: frozenset[int]
    """Rows of the event table: these calls; some wait for the device."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Remove the calls' own time and their waits."""
        host = WithoutWaits(self.rows).applied(WithoutHostWork(self.calls).applied(graph, scenario), scenario).host
        mine = among(host.row, np.fromiter(self.rows, np.int64, len(self.rows)))
        left_ns = np.where(mine, host.call_ns - scaled(host.call_ns, REMOVED_SHARE[scenario]), host.call_ns)
        is_work = mine & (host.action == Action.NOTHING)  # it no longer makes a call that takes time
        work_ns = np.where(is_work, host.work_ns + left_ns, host.work_ns)
        return replace(graph, host=replace(host, work_ns=work_ns, call_ns=left_ns))


_KERNEL_NS = 5_000
"""Maximum time of a kernel that fills a tensor, an assumption. Writing device memory is much faster than the copy."""


@frozen(eq=False)
class BuiltOnDevice(Edit):
    """A kernel replaces the creation of a tensor on the host and its copy."""

    made: SpanSet
    """When the host created the tensors, in nanoseconds since the first event of the trace."""

    copies: Int64
    """Rows of the event table: the copies."""

    calls: frozenset[int]
    """Rows of the calls that copy or wait for a copy."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Remove the host work and the waits for copies; copies take the time of a short kernel."""
        graph = WithoutHostWork(self.made).applied(graph, scenario)
        graph = WithoutWaits(self.calls).applied(graph, scenario)
        short_ns = np.minimum(graph.device.duration_ns, _KERNEL_NS)
        duration_ns = np.where(among(graph.device.row, self.copies), short_ns, graph.device.duration_ns)
        return replace(graph, device=replace(graph.device, duration_ns=duration_ns))
