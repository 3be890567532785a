"""What if kernels that are already queued followed one another more closely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

GAP_FACTOR = {Scenario.LOW: 0.8, Scenario.EXPECTED: 0.55, Scenario.HIGH: 0.1}
"""What is left of the gap between two queued kernels.

NVIDIA, "Getting Started with CUDA Graphs" (2019): a kernel of 2.9 us takes 3.8 us in a stream and 3.4 us in a graph,
which leaves 0.5 of 0.9 us. At most, fusion leaves one kernel of ten; that and the least are assumptions.
"""


@dataclass(frozen=True, slots=True)
class CloserKernels(Edit):
    """Kernels are captured into graphs or fused."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """The gap between queued kernels shrinks; their own time stays."""
        gap_ns = round(graph.constants.queued_gap_ns * GAP_FACTOR[scenario])
        return replace(graph, constants=replace(graph.constants, queued_gap_ns=gap_ns))
