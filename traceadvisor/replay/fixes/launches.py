"""What if the host had less to do to launch the same work.

What if kernels that are already queued followed one another more closely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.model.arrays import Mask
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.edit_host import is_loading, scaled, slowed, work_inside
from traceadvisor.replay.step_graph import Action, Phase, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

LAUNCH_FACTOR = {Scenario.LOW: 0.9, Scenario.EXPECTED: 0.7, Scenario.HIGH: 0.1}
"""What is left of the host's time in operators and in launches.

At most: NVIDIA, "Getting Started with CUDA Graphs" (2019), a kernel of 2.9 us takes 9.6 us with its launch and 3.4 us
within a graph, which leaves 0.5 of 6.7 us. A model of which only parts can be compiled or captured keeps more; seven
and nine tenths are assumptions, no measurements.
"""

FUSED_FACTOR = {Scenario.LOW: 0.5, Scenario.EXPECTED: 0.1, Scenario.HIGH: 0.03}
"""What is left of the host's time in ``Optimizer.step``: few multi-tensor launches instead of several for each
parameter; an assumption."""


@dataclass(frozen=True, slots=True, eq=False)
class AmortisedLaunches(Edit):
    """Operators are compiled or captured into graphs: the same kernels, launched with less ado."""

    operators: SpanSet
    """When the host was inside operators, since the trace's first event; what lies between them, the script's own
    Python, is done all the same."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Operators' work that leads up to a kernel's launch, and the launch, take a share of their time."""
        host = graph.host
        launches_kernel = np.append(graph.device.kind == Kind.KERNEL, False)[host.first]
        eased = launches_kernel & (host.action == Action.LAUNCH) & ~is_loading(host)
        spared_share = np.where(eased, 1 - LAUNCH_FACTOR[scenario], 0.0)
        work_ns = host.work_ns - scaled(work_inside(graph, self.operators), spared_share)
        call_ns = host.call_ns - scaled(host.call_ns, spared_share)
        return replace(graph, host=replace(host, work_ns=work_ns, call_ns=call_ns))


@dataclass(frozen=True, slots=True)
class FusedOptimizer(Edit):
    """The optimizer updates all parameters with a few kernels."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """The host's time in the optimizer shrinks; its kernels move the same bytes, without gaps between them."""
        in_optimizer = (graph.host.phase == Phase.OPTIMIZER) & (graph.host.action == Action.LAUNCH)
        host = slowed(graph.host, np.where(in_optimizer, FUSED_FACTOR[scenario], 1.0))
        return _merged(replace(graph, host=host), in_optimizer)


def _merged(graph: StepGraph, launching: Mask) -> StepGraph:
    """The tasks of some launches as one task a step: the first of each step takes the time of all."""
    first, count = graph.host.first[launching], graph.host.count[launching]
    tasks = np.repeat(first, count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    duration_ns = graph.device.duration_ns.copy()
    steps, leaders = np.unique(graph.device.step[tasks], return_index=True)
    members = np.searchsorted(steps, graph.device.step[tasks])
    gaps_ns = graph.constants.queued_gap_ns * (np.bincount(members) - 1)
    together_ns = np.bincount(members, weights=duration_ns[tasks]).astype(np.int64)
    duration_ns[tasks] = 0
    duration_ns[tasks[leaders]] = np.maximum(together_ns - gaps_ns, 0)
    return replace(graph, device=replace(graph.device, duration_ns=duration_ns))


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
