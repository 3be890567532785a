"""Simulates worker processes that load the batches instead of the training thread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.replay.fixes.data_wait import FETCH_NS, HOST_FACTOR, LOADING
from traceadvisor.replay.fixes.edit_host import fetches, is_loading, scaled, slowed
from traceadvisor.replay.step_graph import Action, HostTasks, StepGraph, Workers
from traceadvisor.replay.what_if import Edit, Scenario

PREFETCH_FACTOR = 2
"""Batches that each worker prefetches; the default of ``torch.utils.data.DataLoader``."""


@dataclass(frozen=True, slots=True)
class LoaderWorkers(Edit):
    """Worker processes load batches. Each takes as long per batch as the training thread took."""

    count: int
    cores: float | None = None
    """CPU cores for the training thread and all workers together; None if unknown.

    A thread alone gets one core, or a part of one if less is available. The recording already includes this.
    """

    changes_device: ClassVar = False
    choice: ClassVar = LOADING

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Take batches from a bounded queue that workers fill. Other host work slows down."""
        takes, load_ns = fetches(graph.host)
        made_ns = scaled(load_ns, HOST_FACTOR[scenario])
        host = slowed(graph.host, np.where(is_loading(graph.host), 0.0, HOST_FACTOR[scenario]))
        if self.cores is not None:
            host, made_ns = self._contending(host, made_ns, max(self.cores, 1.0), scenario)
        host.call_ns[takes] = np.minimum(load_ns, FETCH_NS[scenario])  # at most the time to load it
        action = host.action.copy()
        action[takes] = Action.FETCH
        workers = Workers(self.count, self.count * PREFETCH_FACTOR, tuple(made_ns.tolist()))
        return replace(graph, host=replace(host, action=action), workers=workers, loader_has_workers=True)

    def _contending(self, host: HostTasks, made_ns: Int64, cores: float, scenario: Scenario) -> tuple[HostTasks, Int64]:
        """Host work and batch times if all running processes share the cores evenly.

        With ``k`` busy workers and the training thread, each gets ``cores / (k + 1)`` of a core. A batch takes longer.
        Meanwhile the training thread loses ``(k + 1 - cores) / (k cores)`` of the time of the batch without sharing.
        The step takes at least as long as all cores need for the host work and the batch.
        """
        host_ns, all_made_ns = int((host.work_ns + host.call_ns).sum()), int(made_ns.sum())
        at_once = {Scenario.LOW: self.count, Scenario.EXPECTED: 1, Scenario.HIGH: 0}[scenario]
        behind_ns = all_made_ns * max(at_once + 1 - cores, 0.0) / (at_once * cores) if at_once else 0.0
        least_ns = self.count * (host_ns + all_made_ns) / cores / max(made_ns.size, 1)
        return slowed(host, 1 + behind_ns / max(host_ns, 1)), np.maximum(made_ns, round(least_ns))
