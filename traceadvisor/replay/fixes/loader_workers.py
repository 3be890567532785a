"""What if worker processes made the batches that the training thread makes itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.replay.fixes.data_wait import FETCH_NS, HOST_FACTOR
from traceadvisor.replay.fixes.edit_host import fetches, is_loading, scaled, slowed
from traceadvisor.replay.step_graph import Action, HostTasks, StepGraph, Workers
from traceadvisor.replay.what_if import Edit, Scenario

PREFETCH_FACTOR = 2
"""Batches that a worker may be ahead; the default of ``torch.utils.data.DataLoader``."""


@dataclass(frozen=True, slots=True)
class LoaderWorkers(Edit):
    """So many processes make batches, each taking as long for one as the training thread took."""

    count: int
    cores: float | None = None
    """Cores for the training thread and the workers together; None where not known. A thread by itself gets one, or as
    much of one as there is, which the recording shows."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Batches come from a bounded queue that workers fill; the rest of the host slows down."""
        takes, load_ns = fetches(graph.host)
        made_ns = scaled(load_ns, HOST_FACTOR[scenario])
        host = slowed(graph.host, np.where(is_loading(graph.host), 0.0, HOST_FACTOR[scenario]))
        if self.cores is not None:
            host, made_ns = self._contending(host, made_ns, max(self.cores, 1.0), scenario)
        host.call_ns[takes] = np.minimum(load_ns, FETCH_NS[scenario])  # no dearer than to make it
        action = host.action.copy()
        action[takes] = Action.FETCH
        workers = Workers(self.count, self.count * PREFETCH_FACTOR, tuple(made_ns.tolist()))
        return replace(graph, host=replace(host, action=action), workers=workers, loader_has_workers=True)

    def _contending(self, host: HostTasks, made_ns: Int64, cores: float, scenario: Scenario) -> tuple[HostTasks, Int64]:
        """Host work and batches where processes that want to run share the cores evenly.

        With ``k`` workers at work beside the training thread, each gets ``cores / (k + 1)`` of a core. A batch takes
        longer, and meanwhile the training thread falls behind by ``(k + 1 - cores) / (k cores)`` of what it takes by
        itself. However they share, a batch and the host work for it come no faster than all cores do both.
        """
        host_ns, all_made_ns = int((host.work_ns + host.call_ns).sum()), int(made_ns.sum())
        at_once = {Scenario.LOW: self.count, Scenario.EXPECTED: 1, Scenario.HIGH: 0}[scenario]
        behind_ns = all_made_ns * max(at_once + 1 - cores, 0.0) / (at_once * cores) if at_once else 0.0
        least_ns = self.count * (host_ns + all_made_ns) / cores / max(made_ns.size, 1)
        return slowed(host, 1 + behind_ns / max(host_ns, 1)), np.maximum(made_ns, round(least_ns))
