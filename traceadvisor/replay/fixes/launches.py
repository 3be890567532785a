"""Simulates cheaper kernel launches, and shorter gaps between queued kernels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Mask
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.host_work import is_loading, scaled, slowed, work_inside
from traceadvisor.replay.step_graph import Action, Phase, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

LAUNCH_FACTOR = {Scenario.LOW: 0.9, Scenario.EXPECTED: 0.7, Scenario.HIGH: 0.07}
"""Remaining share of the host time in operators and launches.

High: all launches in graphs. NVIDIA, "Getting Started with CUDA Graphs" (2019): a kernel of 2.9 us takes 9.6 us with
its launch and 3.4 us within a graph, so 0.5 of 6.7 us remain. In a language model, 0.20 remained: all measurements are
in ``tests/recordings/factors.toml``. If only parts of a model can be compiled or captured, more remains: 0.7 and 0.9
are assumptions.
"""

FUSED_FACTOR = {Scenario.LOW: 0.5, Scenario.EXPECTED: 0.1, Scenario.HIGH: 0.03}
"""Remaining share of the host time in ``Optimizer.step``, an assumption.

A few multi-tensor launches replace several launches per parameter.
"""


@frozen(eq=False)
class AmortisedLaunches(Edit):
    """Operators are compiled or captured into CUDA graphs: the same kernels with cheaper launches."""

    operators: SpanSet
    """When the host was inside operators, in nanoseconds since the first event of the trace.

    Python code of the script between operators keeps its time.
    """

    changes_device: ClassVar = False
    expected_part: ClassVar = 1 - LAUNCH_FACTOR[Scenario.EXPECTED]

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Scale the operator work before each kernel launch, and the launch."""
        host = graph.host
        launches_kernel = np.concatenate((graph.device.kind == Kind.KERNEL, [False]))[host.first]
        eased = launches_kernel & (host.action == Action.LAUNCH) & ~is_loading(host)
        spared_share = np.where(eased, 1 - LAUNCH_FACTOR[scenario], 0.0)
        work_ns = host.work_ns - scaled(work_inside(graph, self.operators, scenario), spared_share)
        call_ns = host.call_ns - scaled(host.call_ns, spared_share)
        return replace(graph, host=replace(host, work_ns=work_ns, call_ns=call_ns))


@frozen
class FusedOptimizer(Edit):
    """The optimizer updates all parameters with a few kernels."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Scale the host time in the optimizer. Its kernels move the same bytes, without gaps between them."""
        in_optimizer = (graph.host.phase == Phase.OPTIMIZER) & (graph.host.action == Action.LAUNCH)
        host = slowed(graph.host, np.where(in_optimizer, FUSED_FACTOR[scenario], 1.0))
        return _merged(replace(graph, host=host), in_optimizer)


def _merged(graph: StepGraph, launching: Mask) -> StepGraph:
    """Merge the tasks of some launches into one per step: the first task takes the time of all."""
    first, count = graph.host.first[launching], graph.host.count[launching]
    tasks = first.repeat(count) + np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)
    duration_ns = graph.device.duration_ns.copy()
    steps, leaders = np.unique(graph.device.step[tasks], return_index=True)
    members = steps.searchsorted(graph.device.step[tasks])
    gaps_ns = graph.constants.queued_gap_ns * (np.bincount(members) - 1)
    together_ns = np.bincount(members, weights=duration_ns[tasks]).astype(np.int64)
    duration_ns[tasks] = 0
    duration_ns[tasks[leaders]] = np.maximum(together_ns - gaps_ns, 0)
    return replace(graph, device=replace(graph.device, duration_ns=duration_ns))


GAP_FACTOR = {Scenario.LOW: 0.8, Scenario.EXPECTED: 0.55, Scenario.HIGH: 0.1}
"""Remaining share of the gap between two queued kernels.

NVIDIA, "Getting Started with CUDA Graphs" (2019): a kernel of 2.9 us takes 3.8 us in a stream and 3.4 us in a graph, so
0.5 of 0.9 us remain. High: fusion leaves one kernel of ten. The low and high values are assumptions.
"""


@frozen
class CloserKernels(Edit):
    """Kernels are captured into CUDA graphs or fused."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Scale the gap between queued kernels. Kernels keep their time."""
        gap_ns = round(graph.constants.queued_gap_ns * GAP_FACTOR[scenario])
        return replace(graph, constants=replace(graph.constants, queued_gap_ns=gap_ns))
