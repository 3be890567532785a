"""Simulates a data loader whose next batch is always ready."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceadvisor.analysis.data.worker_curve import TAKING_NS, WORKER_FACTOR
from traceadvisor.frozen import frozen, replace
from traceadvisor.replay.fixes.host_work import REMOVED_SHARE, fetches, is_loading, slowed
from traceadvisor.replay.step_graph import Action, HostTasks, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario

LOADING = "how batches are loaded"
"""The choice that loader fixes make."""

KEPT_CACHES_SHARE = 0.3
"""Share of the host work, at most, that becomes faster because the training thread keeps its caches.

A vision transformer on 16 cores had 0.70 of its host work per step left with 12 workers; its batches took 2.5 times the
CPU time of that work. If batches take less CPU time than that work, so much less is gained: an assumption.
"""

HOST_FACTOR = {Scenario.LOW: 1.2, Scenario.EXPECTED: WORKER_FACTOR, Scenario.HIGH: 1.0}
"""Factor on host work once worker processes make the batches: the largest measured, the middle, and unchanged.

Workers and the training thread share caches and memory. In public recordings of one ResNet-50 training with 0 and 4
workers (pytorch/kineto, TensorBoard plugin samples), host work per step rose by 7 to 19%. In the captured pair of
benchmarks/validation it fell by 5%, because the training thread no longer decodes images and keeps its caches. Only
workers that each have a core are assumed to bring such a gain, for the highest saving: ``KEPT_CACHES_SHARE``.
"""

CROWDED_HOST_FACTOR = {Scenario.LOW: 1.1, Scenario.EXPECTED: 1.0, Scenario.HIGH: 1.0}
"""The same factor if the recording already has workers and shows their effect; an assumption."""

FETCH_NS = {Scenario.LOW: 1_400_000, Scenario.EXPECTED: TAKING_NS, Scenario.HIGH: 80_000}
"""Time to take a finished batch: the range and middle in the same recordings with 4 workers.

It replaces the recorded time of a fetch and never exceeds it.
"""


@frozen
class NoDataWait(Edit):
    """The next batch is always ready."""

    changes_device: ClassVar = False
    choice: ClassVar = LOADING

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Remove loading from the training thread. Taking a batch stays, and other host work slows down."""
        takes, load_ns = fetches(graph.host)
        factor = (CROWDED_HOST_FACTOR if graph.loader_has_workers else HOST_FACTOR)[scenario]
        if scenario is Scenario.HIGH and not graph.loader_has_workers:
            factor -= kept_caches(graph.host, float(load_ns.sum()), float(load_ns.sum()))
        host = slowed(graph.host, np.where(is_loading(graph.host), 0.0, factor))
        host.work_ns[takes] = np.minimum(load_ns, FETCH_NS[scenario])
        action = np.where(host.action == Action.FETCH, np.int8(Action.NOTHING), host.action)
        return replace(graph, host=replace(host, action=action))


def kept_caches(host: HostTasks, load_ns: float, cpu_ns: float) -> float:
    """The share of the rest of the step that becomes faster at most if other cores make the batches.

    Args:
        host: tasks of a process that makes its own batches.
        load_ns: their time in the loader.
        cpu_ns: CPU time of the batches.
    """
    rest_ns = float((host.work_ns + host.call_ns).sum()) - load_ns
    return KEPT_CACHES_SHARE * min(cpu_ns / max(rest_ns, 1.0), 1.0)


@frozen
class CheaperBatches(Edit):
    """Some work that all batches need is done less often, or elsewhere."""

    share: float
    """Share of the loading that it takes, 0..1."""

    likely: float
    """The same of the work that is expected to be removed with it."""

    high: float
    """The same of all work that may be removed with it."""

    changes_device: ClassVar = False
    choice: ClassVar = LOADING

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Shorten the loading in the training thread, and in workers that limit the loop."""
        of_loading = {Scenario.LOW: self.share, Scenario.EXPECTED: self.likely, Scenario.HIGH: self.high}
        left = 1 - REMOVED_SHARE[scenario] * of_loading[scenario]
        if not graph.loader_has_workers:
            return replace(graph, host=slowed(graph.host, np.where(is_loading(graph.host), left, 1.0)))
        made = graph.workers
        made = made and replace(made, load_ns=tuple(round(ns * left) for ns in made.load_ns))
        return replace(graph, workers=made)
