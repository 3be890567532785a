"""Simulates worker processes that load the batches instead of the training thread, or another number of them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int64
from traceadvisor.replay.fixes.data_wait import CROWDED_HOST_FACTOR, FETCH_NS, HOST_FACTOR, LOADING, kept_caches
from traceadvisor.replay.fixes.host_work import fetches, is_loading, scaled, slowed
from traceadvisor.replay.step_graph import Action, HostTasks, StepGraph, Workers
from traceadvisor.replay.what_if import Edit, Scenario

PREFETCH_FACTOR = 2
"""Batches that each worker prefetches; the default of ``torch.utils.data.DataLoader``."""


@frozen
class MadeBatch:
    """Mean cost of a batch for a worker that has a core whenever it needs one."""

    cpu_ns: float
    wait_ns: float
    """Waiting for storage, a network or a lock. It needs no core."""

    uneven_ns: float = 0.0
    """Mean wait of the loop per batch because batches take unequally long, with the simulated number of workers."""

    delay_ns: float = 0.0
    """Mean delay per batch by other programs that use the cores."""

    shared_ns: float = 0.0
    """Further CPU time at most, if several threads of the training process shared the operators."""


@frozen
class LoaderWorkers(Edit):
    """Worker processes load batches."""

    count: int
    cores: float | None = None
    """CPU cores for the training thread and all workers together; None if unknown.

    A thread alone gets one core, or a part of one if less is available. The recording already includes this.
    """

    prefetch: int = PREFETCH_FACTOR
    made: MadeBatch | None = None
    """Cost of a batch; None: each batch takes CPU time, as long as in the training thread."""

    training_cores: float = 1.0
    """Cores that the training process keeps busy; more than one with operators that use several threads."""

    taking_ns: float | None = None
    """Measured time to take a batch that is ready; None if unknown."""

    changes_device: ClassVar = False
    choice: ClassVar = LOADING

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Take batches from a bounded queue that workers fill. Other host work slows down."""
        factor = (CROWDED_HOST_FACTOR if graph.loader_has_workers else HOST_FACTOR)[scenario]
        takes, load_ns = fetches(graph.host)
        cpu_ns, wait_ns = load_ns, np.zeros_like(load_ns)
        if self.made:
            longer_ns = self.made.shared_ns if scenario is Scenario.LOW else 0.0
            cpu_ns = np.full_like(load_ns, round(self.made.cpu_ns + longer_ns))
            delay_ns = 0.0 if scenario is Scenario.HIGH else self.made.delay_ns
            wait_ns = np.full_like(load_ns, round(self.made.wait_ns + delay_ns))
        if scenario is Scenario.HIGH and not graph.loader_has_workers and self._has_core_for_each:
            factor -= kept_caches(graph.host, float(load_ns.sum()), float(cpu_ns.sum()))
        cpu_ns = scaled(cpu_ns, max(factor, 1.0))
        made_ns = cpu_ns + wait_ns
        host = slowed(graph.host, np.where(is_loading(graph.host), 0.0, factor))
        if self.cores is not None:
            host, made_ns = self._contending(host, cpu_ns, wait_ns, max(self.cores, 1.0), scenario)
        uneven_ns = 0 if self.made is None or scenario is Scenario.HIGH else round(self.made.uneven_ns)
        taking_ns = FETCH_NS[scenario] if self.taking_ns is None else round(self.taking_ns)
        host.call_ns[takes] = np.minimum(load_ns, taking_ns) + uneven_ns  # taking: at most as long as loading
        action = host.action.copy()
        action[takes] = Action.FETCH
        workers = Workers(self.count, self.count * self.prefetch, tuple(made_ns.tolist()))
        return replace(graph, host=replace(host, action=action), workers=workers, loader_has_workers=True)

    @property
    def _has_core_for_each(self) -> bool:
        return self.cores is None or self.cores >= self.count + self.training_cores

    def _contending(
        self, host: HostTasks, cpu_ns: Int64, wait_ns: Int64, cores: float, scenario: Scenario
    ) -> tuple[HostTasks, Int64]:
        """Host work and batch times if all computing threads share the cores evenly. Waiting workers need no core.

        With ``k`` computing workers and ``m`` threads of the training, each gets ``cores / (k + m)`` of a core.
        Meanwhile the training loses ``(k + m - cores) / (k cores)`` of the CPU time of the batch. The step takes at
        least as long as all cores need for the host work and the batch.
        """
        host_ns, all_cpu_ns = int((host.work_ns + host.call_ns).sum()), int(cpu_ns.sum())
        computing = self.count * all_cpu_ns / max(all_cpu_ns + int(wait_ns.sum()), 1)
        at_once = {Scenario.LOW: computing, Scenario.EXPECTED: min(computing, 1.0), Scenario.HIGH: 0.0}[scenario]
        threads = min(self.training_cores, cores) if scenario is Scenario.LOW else 1.0
        behind_ns = all_cpu_ns * max(at_once + threads - cores, 0.0) / (at_once * cores) if at_once else 0.0
        least_ns = self.count * (host_ns + all_cpu_ns) / cores / max(cpu_ns.size, 1)
        return slowed(host, 1 + behind_ns / max(host_ns, 1)), np.maximum(cpu_ns + wait_ns, round(least_ns))
