"""What if a part of the machine were faster: not a fix, but what buying one would bring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.edit_host import is_loading, scaled, slowed
from traceadvisor.replay.step_graph import StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


@dataclass(frozen=True, slots=True)
class FasterDevice(Edit):
    """Kernels take less time; copies and collectives, which follow the links, and launches take theirs."""

    times: float
    """How many times as fast."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:  # noqa: ARG002  # there is nothing to assume
        """The kernels' durations are divided."""
        factor = np.where(graph.device.kind == Kind.KERNEL, 1 / self.times, 1.0)
        duration_ns = scaled(graph.device.duration_ns, factor)
        return replace(graph, device=replace(graph.device, duration_ns=duration_ns))


@dataclass(frozen=True, slots=True)
class FasterHost(Edit):
    """All host work takes less time, loading included, in this process and in workers."""

    times: float
    """How many times as fast."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Host work and calls are divided, and the time of batches."""
        rest = slowed(graph.host, np.where(is_loading(graph.host), 1.0, 1 / self.times))
        return FasterLoader(self.times).applied(replace(graph, host=rest), scenario)


@dataclass(frozen=True, slots=True)
class FasterLoader(Edit):
    """Batches are made in less time, wherever they are made."""

    times: float
    """How many times as fast."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:  # noqa: ARG002  # there is nothing to assume
        """Work inside the loader is divided, and the workers' time for each batch."""
        host = slowed(graph.host, np.where(is_loading(graph.host), 1 / self.times, 1.0))
        workers = graph.workers
        if workers:
            workers = replace(workers, load_ns=tuple(round(load / self.times) for load in workers.load_ns))
        return replace(graph, host=host, workers=workers)
