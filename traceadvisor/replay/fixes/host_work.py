"""Simulates a step without some of its host work."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from traceadvisor.frozen import frozen
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.edit_host import scaled, work_inside
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

REMOVED_SHARE = {Scenario.LOW: 0.5, Scenario.EXPECTED: 0.9, Scenario.HIGH: 1.0}
"""Removed share of the work; assumptions.

If the work runs every tenth step, a tenth of it remains. If it moves to another thread of the same interpreter, both
threads take turns, and half of it may remain.
"""


@frozen(eq=False)
class WithoutHostWork(Edit):
    """Some host work runs less often or elsewhere."""

    spans: SpanSet
    """Recorded time of this work, in nanoseconds since the first event of the trace."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Remove a share of the work in the spans. Calls keep their time."""
        removed_ns = scaled(work_inside(graph, self.spans), REMOVED_SHARE[scenario])
        return replace(graph, host=replace(graph.host, work_ns=graph.host.work_ns - removed_ns))
