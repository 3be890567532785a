"""What if the allocator had no need of the driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.edit_host import scaled
from traceadvisor.replay.fixes.host_work import REMOVED_SHARE, WithoutHostWork
from traceadvisor.replay.fixes.waits import WithoutWaits
from traceadvisor.replay.step_graph import Action, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


@dataclass(frozen=True, slots=True, eq=False)
class CachedMemory(Edit):
    """Memory comes from torch's own cache: no call takes any from the driver or gives it back."""

    calls: SpanSet
    """When the host was inside such calls, since the trace's first event."""

    rows: frozenset[int]
    """Rows of the event table: those calls, of which some wait for the device."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """The calls' own time goes, as does what they wait for."""
        host = WithoutWaits(self.rows).applied(WithoutHostWork(self.calls).applied(graph, scenario), scenario).host
        mine = np.isin(host.row, np.fromiter(self.rows, np.int64, len(self.rows)))
        left_ns = np.where(mine, host.call_ns - scaled(host.call_ns, REMOVED_SHARE[scenario]), host.call_ns)
        is_work = mine & (host.action == Action.NOTHING)  # which makes no call that could take time
        work_ns = np.where(is_work, host.work_ns + left_ns, host.work_ns)
        return replace(graph, host=replace(host, work_ns=work_ns, call_ns=left_ns))
