"""What if tensors were made on the device instead of on the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import WithoutHostWork
from traceadvisor.replay.fixes.waits import WithoutWaits
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

KERNEL_NS = 5_000
"""A kernel that fills a tensor, beyond which writing device memory takes far less than the copy did; an assumption."""


@dataclass(frozen=True, slots=True, eq=False)
class BuiltOnDevice(Edit):
    """A kernel stands where a tensor was made on the host and copied."""

    made: SpanSet
    """When the host made them, since the trace's first event."""

    copies: Int64
    """Rows of the event table: the copies."""

    calls: frozenset[int]
    """Rows of the calls that copy, or wait for that."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """The host hardly makes anything and waits for no copy; copies take a short kernel's time."""
        graph = WithoutHostWork(self.made).applied(graph, scenario)
        graph = WithoutWaits(self.calls).applied(graph, scenario)
        short_ns = np.minimum(graph.device.duration_ns, KERNEL_NS)
        duration_ns = np.where(np.isin(graph.device.row, self.copies), short_ns, graph.device.duration_ns)
        return replace(graph, device=replace(graph.device, duration_ns=duration_ns))
