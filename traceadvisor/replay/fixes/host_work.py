"""What if some of the host's own work were not done within the step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.edit_host import scaled, work_inside
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

REMOVED_SHARE = {Scenario.LOW: 0.5, Scenario.EXPECTED: 0.9, Scenario.HIGH: 1.0}
"""How much of it goes; assumptions.

Work done every tenth step leaves a tenth of it. Work that moves to another thread of the same interpreter still takes
turns with the training thread, and half of it may stay.
"""


@dataclass(frozen=True, slots=True, eq=False)
class WithoutHostWork(Edit):
    """The host's work at some instants is done less often, or elsewhere."""

    spans: SpanSet
    """Recorded instants, since the trace's first event."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Work that lies in the spans takes a share of its time; calls take theirs."""
        removed_ns = scaled(work_inside(graph, self.spans), REMOVED_SHARE[scenario])
        return replace(graph, host=replace(graph.host, work_ns=graph.host.work_ns - removed_ns))
