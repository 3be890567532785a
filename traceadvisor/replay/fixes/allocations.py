"""Simulates an allocator that never calls the driver."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import among
from traceadvisor.model.spans import SpanSet
from traceadvisor.replay.fixes.edit_host import scaled
from traceadvisor.replay.fixes.host_work import REMOVED_SHARE, WithoutHostWork
from traceadvisor.replay.fixes.waits import WithoutWaits
from traceadvisor.replay.step_graph import Action, StepGraph
from traceadvisor.replay.what_if import Edit, Scenario


@frozen(eq=False)
class CachedMemory(Edit):
    """Memory comes from PyTorch's caching allocator: no call allocates from the driver or frees to it."""

    calls: SpanSet
    """When the host was inside such calls, in nanoseconds since the first event of the trace."""

    rows: frozenset[int]
    """Rows of the event table: these calls; some wait for the device."""

    changes_device: ClassVar = True

    def applied(self, graph: StepGraph, scenario: Scenario) -> StepGraph:
        """Remove the calls' own time and their waits."""
        host = WithoutWaits(self.rows).applied(WithoutHostWork(self.calls).applied(graph, scenario), scenario).host
        mine = among(host.row, np.fromiter(self.rows, np.int64, len(self.rows)))
        left_ns = np.where(mine, host.call_ns - scaled(host.call_ns, REMOVED_SHARE[scenario]), host.call_ns)
        is_work = mine & (host.action == Action.NOTHING)  # it no longer makes a call that takes time
        work_ns = np.where(is_work, host.work_ns + left_ns, host.work_ns)
        return replace(graph, host=replace(host, work_ns=work_ns, call_ns=left_ns))
