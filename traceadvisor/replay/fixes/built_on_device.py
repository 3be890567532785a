"""Simulates tensors that are created on the device instead of the host."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, among
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.replay.fixes.waits import WithoutWaits
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

KERNEL_NS = 5_000
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
        short_ns = np.minimum(graph.device.duration_ns, KERNEL_NS)
        duration_ns = np.where(among(graph.device.row, self.copies), short_ns, graph.device.duration_ns)
        return replace(graph, device=replace(graph.device, duration_ns=duration_ns))
