"""Simulates faster hardware: not a fix, but the gain from a purchase."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.host_work import is_loading, scaled, slowed
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


@frozen
class FasterDevice(Edit):
    """Kernels take less time. Launches, copies and collectives keep theirs; the latter two depend on links."""

    times: float
    """Speed-up factor."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:  # noqa: ARG002  # it needs no assumption
        """Divide the duration of each kernel."""
        factor = np.where(graph.device.kind == Kind.KERNEL, 1 / self.times, 1.0)
        duration_ns = scaled(graph.device.duration_ns, factor)
        return replace(graph, device=replace(graph.device, duration_ns=duration_ns))


@frozen
class FasterHost(Edit):
    """All host work takes less time, including loading in this process and in workers."""

    times: float
    """Speed-up factor."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Divide host work, calls and batch loading times."""
        rest = slowed(graph.host, np.where(is_loading(graph.host), 1.0, 1 / self.times))
        return FasterLoader(self.times).applied(replace(graph, host=rest), scenario)


@frozen
class FasterLoader(Edit):
    """Batch loading takes less time, in this process and in workers."""

    times: float
    """Speed-up factor."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:  # noqa: ARG002  # it needs no assumption
        """Divide the work inside the loader and the workers' time per batch."""
        host = slowed(graph.host, np.where(is_loading(graph.host), 1 / self.times, 1.0))
        workers = graph.workers
        if workers:
            workers = replace(workers, load_ns=tuple(round(load / self.times) for load in workers.load_ns))
        return replace(graph, host=host, workers=workers)
