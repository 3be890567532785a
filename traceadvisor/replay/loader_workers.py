"""What if worker processes made the batches that the training thread makes itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.replay.data_wait import FETCH_NS, HOST_FACTOR
from traceadvisor.replay.edit_host import fetches, is_loading, scaled, slowed
from traceadvisor.replay.step_graph import Action, StepGraph, Workers
from traceadvisor.replay.what_if import Edit, Scenario

PREFETCH_FACTOR = 2
"""Batches that a worker may be ahead; the default of ``torch.utils.data.DataLoader``."""


@dataclass(frozen=True, slots=True)
class LoaderWorkers(Edit):
    """So many processes make batches, each taking as long for one as the training thread took."""

    count: int
    cores: int | None = None
    """Cores for the workers, beside the training thread's; None where not known. More workers share them."""

    changes_device: ClassVar = False

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Batches come from a bounded queue that workers fill; the rest of the host slows down."""
        loading = is_loading(graph.host)
        takes, load_ns = fetches(graph.host)
        crowding = max(self.count / self.cores, 1.0) if self.cores else 1.0
        made_ns = scaled(load_ns, crowding * HOST_FACTOR[scenario])
        host = slowed(graph.host, np.where(loading, 0.0, HOST_FACTOR[scenario]))
        host.call_ns[takes] = np.minimum(load_ns, FETCH_NS[scenario])  # no dearer than to make it
        action = host.action.copy()
        action[takes] = Action.FETCH
        workers = Workers(self.count, self.count * PREFETCH_FACTOR, tuple(made_ns.tolist()))
        return replace(graph, host=replace(host, action=action), workers=workers)
