"""Simulates a step without some of its device operations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int64, Mask, among, one_of
from traceadvisor.model.events import NONE, EventTable
from traceadvisor.model.saving import EXPECTED_PART
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork, recorded_inside, scaled, slowed, work_inside
from traceadvisor.replay.step_graph import Action, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

WORK_LEFT_FACTOR = {Scenario.LOW: 1.0, Scenario.EXPECTED: 0.5, Scenario.HIGH: 0.0}
"""Remaining share of the host work between the previous call and a removed call; assumptions.

A recording does not show how much of this work prepares the removed call.
"""


@frozen(eq=False)
class SparedWork(Edit):
    """Some kernels, copies or memsets are neither launched nor run."""

    rows: Int64
    """Rows of the event table, in any order, shape ``(k,)``."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Set these operations to no time, and remove calls that launch nothing else.

        An operation that waits for another stream stays, without time: what follows on its stream waits too.
        """
        spared = among(graph.device.row, self.rows)
        unmade = _launches_only(graph, spared & _is_awaited_by_none(graph))
        host = slowed(graph.host, np.where(unmade, WORK_LEFT_FACTOR[scenario], 1.0))
        host = replace(
            host,
            call_ns=np.where(unmade, 0, host.call_ns),
            action=np.where(unmade, Action.NOTHING, host.action).astype(np.int8),
        )
        duration_ns = np.where(spared, 0, graph.device.duration_ns)
        return replace(graph, host=host, device=replace(graph.device, duration_ns=duration_ns))


WHOLE_SHARE = 0.9
"""Share of a GPU operation that is claimed, from which on it counts as claimed as a whole."""


def _is_awaited_by_none(graph: StepGraph) -> Mask:
    """Whether no call and no other stream waits for each device task, nor it for another stream."""
    return graph.once(_are_apart, graph.host.first, graph.host.count, graph.device.after)


def _are_apart(first: Int64, count: Int64, after: Int64) -> Mask:
    """The same, from what each host task launches or waits for, and what each device task waits for."""
    apart: Mask = after == NONE
    waited = np.concatenate((first[count == 0], after))
    apart[waited[waited != NONE]] = False
    return apart


def _launches_only(graph: StepGraph, chosen: Mask) -> Mask:
    """Whether each host task launches chosen tasks and nothing else."""
    before = np.concatenate(([0], chosen.cumsum()))
    first, count = graph.host.first, graph.host.count
    launching = count > 0
    only: Mask = launching & (
        before[np.where(launching, first + count, 0)] - before[np.where(launching, first, 0)] == count
    )
    return only


@frozen(eq=False)
class WithoutRecomputation(Edit):
    """No block of the forward pass runs again in the backward pass."""

    rows: Int64
    """Rows of the event table: the device operations of these blocks, in any order, shape ``(k,)``."""

    spans: SpanSet
    """Host time of these blocks."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Remove the operations and a share of the host work."""
        return WithoutHostWork(self.spans).applied(SparedWork(self.rows).applied(graph, scenario), scenario)


@frozen(eq=False)
class ClaimedTimeGone(Edit):
    """GPU operations take less time where they are claimed; so do host work and waits where the GPU is idle.

    The low scenario keeps all of the claimed time, the high one removes as much of it as the finding can reach. An
    operation that is wholly gone is not launched, if its launch is inside some operators, and their time is gone, too.
    """

    events: EventTable
    on_device: SpanSet
    on_host: SpanSet
    operators: SpanSet
    """When the host was inside operators that are gone with what they launch; empty if all stay."""

    reach: float = 1.0
    """Share of the claimed time that the finding can remove at most, 0..1."""

    part: float = EXPECTED_PART
    """Share of that which is expected."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Shorten each task by its part in the claimed time."""
        if scenario is Scenario.LOW:
            return graph
        share = self.reach if scenario is Scenario.HIGH else self.reach * self.part
        host, device = graph.host, graph.device
        action, call_ns, removed_ns = host.action, host.call_ns, np.zeros(len(host), dtype=np.int64)
        if self.on_host:
            calls_ns = graph.once(_inside, self.events, self.on_host, host.row)
            work_ns = work_inside(graph, self.on_host, scenario)
            if share > WHOLE_SHARE:
                action = self._without_waits(graph, calls_ns, work_ns)
            call_ns = np.maximum(call_ns - scaled(calls_ns, share), 0)
            removed_ns = scaled(work_ns, share)
        claimed_ns = graph.once(_inside, self.events, self.on_device, device.row)
        duration_ns = np.maximum(device.duration_ns - scaled(claimed_ns, share), 0)
        whole = duration_ns < (1 - WHOLE_SHARE) * device.duration_ns
        if self.operators and whole.any():
            unmade = _launches_only(graph, whole & _is_awaited_by_none(graph))
            unmade &= self.operators.contains(graph.recorded_ns)
            with_launch_ns = np.maximum(removed_ns, work_inside(graph, self.operators, scenario))
            removed_ns = np.where(unmade, with_launch_ns, removed_ns)
            call_ns = np.where(unmade, 0, call_ns)
        return replace(
            graph,
            host=replace(host, work_ns=host.work_ns - removed_ns, call_ns=call_ns, action=action),
            device=replace(device, duration_ns=duration_ns),
        )

    def _without_waits(self, graph: StepGraph, calls_ns: Int64, work_ns: Int64) -> NDArray[np.int8]:
        """The actions of the host tasks without waits of those that have claimed time."""
        action, touched = graph.host.action.copy(), work_ns + calls_ns > 0
        waits = one_of(action, Action.WAIT, Action.WAIT_ALL) & touched
        fetches = action == Action.FETCH
        if fetches.any():
            waits |= fetches & (recorded_inside(graph, self.on_host) > 0)
        held_up = (action == Action.LAUNCH_AND_WAIT) & (calls_ns > 0) & touched
        action[waits] = Action.NOTHING
        action[held_up] = Action.LAUNCH
        return action


def _inside(events: EventTable, spans: SpanSet, rows: Int64) -> Int64:
    """The part of each event in some spans; 0 for tasks that are no events."""
    inside = np.zeros(rows.size, dtype=np.int64)
    if spans:
        known = (rows != NONE).nonzero()[0]
        starts, ends = events.start_ns[rows[known]], events.end_ns[rows[known]]
        inside[known] = spans.measure_in(np.minimum(starts, ends), ends)
    return inside
