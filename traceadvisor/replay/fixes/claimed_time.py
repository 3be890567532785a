"""Simulates a step without the time that a finding claims: no fix of that time saves more."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, EventTable
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import work_inside
from traceadvisor.replay.step_graph import Action, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


@frozen(eq=False)
class ClaimedTimeGone(Edit):
    """GPU operations take no time where they are claimed; neither do host work and waits where the GPU is idle."""

    events: EventTable
    on_device: SpanSet
    on_host: SpanSet

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:  # noqa: ARG002  # it needs no assumption
        """Shorten each task by its part in the claimed time."""
        host, device = graph.host, graph.device
        calls_ns = self._inside(self.on_host, host.row)
        work_ns = work_inside(graph, self.on_host)
        touched = work_ns + calls_ns > 0
        waits = np.isin(host.action, (Action.WAIT, Action.WAIT_ALL, Action.FETCH)) & touched
        action = np.where(waits, np.int8(Action.NOTHING), host.action)
        held_up = (host.action == Action.LAUNCH_AND_WAIT) & (calls_ns > 0)
        action = np.where(held_up, np.int8(Action.LAUNCH), action).astype(np.int8)
        call_ns = np.maximum(host.call_ns - calls_ns, 0)
        duration_ns = np.maximum(device.duration_ns - self._inside(self.on_device, device.row), 0)
        return replace(
            graph,
            host=replace(host, work_ns=host.work_ns - work_ns, call_ns=call_ns, action=action),
            device=replace(device, duration_ns=duration_ns),
        )

    def _inside(self, spans: SpanSet, rows: Int64) -> Int64:
        """The part of each event in some spans; 0 for tasks that are no events."""
        starts, ends = (np.append(times, 0)[rows] for times in (self.events.start_ns, self.events.end_ns))
        inside: Int64 = np.where(
            rows == NONE, 0, spans.measure_until(ends) - spans.measure_until(np.minimum(starts, ends))
        )
        return inside
