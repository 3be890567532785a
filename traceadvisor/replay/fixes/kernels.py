"""Simulates faster kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


@dataclass(frozen=True, slots=True, eq=False)
class FasterKernels(Edit):
    """Some kernels run faster, by speed-ups that the rule provides."""

    rows: Int64
    """Rows of the event table, ascending, shape ``(k,)``."""

    low: Float64
    """Lowest speed-up of each kernel, at least 1; shape ``(k,)``."""

    expected: Float64
    high: Float64

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Divide the durations by the speed-ups."""
        speedups = {Scenario.LOW: self.low, Scenario.EXPECTED: self.expected, Scenario.HIGH: self.high}[scenario]
        mine = np.isin(graph.device.row, self.rows)
        duration_ns = graph.device.duration_ns.copy()
        faster = duration_ns[mine] / speedups[np.searchsorted(self.rows, graph.device.row[mine])]
        duration_ns[mine] = np.rint(faster).astype(np.int64)
        return replace(graph, device=replace(graph.device, duration_ns=duration_ns))
