"""Simulates a step that keeps activations instead of computing them again."""

from __future__ import annotations

from typing import ClassVar

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


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
