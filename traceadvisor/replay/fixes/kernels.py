"""Simulates faster kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Float64, Int64, among, common
from traceadvisor.model.events import Kind
from traceadvisor.replay.fixes.host_work import is_loading, scaled, slowed
from traceadvisor.replay.fixes.spared_work import SparedWork
from traceadvisor.replay.step_graph import Action, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

CAST_LAUNCHES = 1.8
"""Launches of a step in a narrower type over those before, at most: casts took a step from 29 to 52."""


@frozen(eq=False)
class FasterKernels(Edit):
    """Some kernels run faster, by speed-ups that the rule provides."""

    rows: Int64
    """Rows of the event table, ascending, shape ``(k,)``."""

    low: Float64
    """Lowest speed-up of each kernel, at least 1; shape ``(k,)``."""

    expected: Float64
    high: Float64

    fused: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rows of those that become part of another kernel, which alone is launched; beside the lowest speed-up, none."""

    has_casts: bool = False
    """Whether the lowest saving has as many more launches as casts may need."""

    changes_device: ClassVar = True

    def excludes(self, other: Edit) -> bool:
        """Whether both speed up mostly the same kernels: a kernel runs in one way only."""
        if not isinstance(other, FasterKernels):
            return False
        shared = common(self.rows, other.rows).size
        return shared > SAME_KERNELS_SHARE * max(min(self.rows.size, other.rows.size), 1)

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Divide the durations by the speed-ups, and launch no kernel that is part of another."""
        speedups = self.speedups(scenario)
        mine = among(graph.device.row, self.rows)
        duration_ns = graph.device.duration_ns.copy()
        faster = duration_ns[mine] / speedups[self.rows.searchsorted(graph.device.row[mine])]
        duration_ns[mine] = np.rint(faster).astype(np.int64)
        left = replace(graph, device=replace(graph.device, duration_ns=duration_ns))
        if scenario is Scenario.LOW and self.has_casts:
            launching = (graph.host.action == Action.LAUNCH) & ~is_loading(graph.host)
            left = replace(left, host=slowed(graph.host, np.where(launching, CAST_LAUNCHES, 1.0)))
        if scenario is Scenario.LOW or not self.fused.size:
            return left
        launched = SparedWork(self.fused).applied(left, scenario)
        return replace(left, host=replace(launched.host, action=left.host.action))  # what it becomes part of runs

    def speedups(self, scenario: Scenario) -> Float64:
        """The speed-up of each kernel, shape ``(k,)``."""
        return {Scenario.LOW: self.low, Scenario.EXPECTED: self.expected, Scenario.HIGH: self.high}[scenario]


SAME_KERNELS_SHARE = 0.8
"""Two fixes that speed up more than this share of the smaller set of kernels are alternatives."""


def each_kernel_once(edits: Iterable[Edit]) -> list[Edit]:
    """The edits with one for all faster kernels first: of several speed-ups of a kernel, the largest counts."""
    given = list(edits)
    faster = [edit for edit in given if isinstance(edit, FasterKernels)]
    others = [edit for edit in given if not isinstance(edit, FasterKernels)]
    if len(faster) < 2:
        return [*faster, *others]
    rows = np.unique(np.concatenate([edit.rows for edit in faster]))
    largest = {scenario: np.ones(rows.size) for scenario in Scenario}
    for edit in faster:
        places = rows.searchsorted(edit.rows)
        for scenario, speedups in largest.items():
            speedups[places] = np.maximum(speedups[places], edit.speedups(scenario))
    fused, has_casts = np.concatenate([edit.fused for edit in faster]), any(edit.has_casts for edit in faster)
    low, expected, high = (largest[scenario] for scenario in Scenario)
    return [FasterKernels(rows, low, expected, high, fused, has_casts), *others]


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
