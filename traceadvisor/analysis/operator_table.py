"""Operators by name: what they cost the host and the device."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.launches import Launches
from traceadvisor.analysis.operator_tree import OperatorTree
from traceadvisor.model.events import NONE
from traceadvisor.model.report import OperatorRow
from traceadvisor.model.steps import StepTable
from traceadvisor.model.trace import Trace


def operator_table(trace: Trace, launches: Launches, tree: OperatorTree, table: StepTable) -> tuple[OperatorRow, ...]:
    """One row an operator name over those that start in the kept steps' host marks.

    Device time is that of the work launched from the operator itself; the largest cost, host or device, comes first.
    """
    chosen, steps = table.kept_marks.contains(tree.start_ns), len(table.kept)
    if not chosen.any() or not steps:
        return ()
    names, group = np.unique(trace.events.name_id[tree.rows[chosen]], return_inverse=True)
    calls = np.bincount(group)
    host = np.bincount(group, weights=tree.self_time_ns()[chosen].astype(np.float64))
    device = np.bincount(group, weights=_device_time_ns(trace, launches, tree)[chosen])
    has_device = bool(launches.work_rows.size)
    return tuple(
        OperatorRow(
            trace.names[names[at]],
            int(calls[at]) / steps,
            float(host[at]) / steps,
            float(device[at]) / steps if has_device else None,
        )
        for at in np.argsort(-np.maximum(host, device), kind="stable").tolist()
    )


def _device_time_ns(trace: Trace, launches: Launches, tree: OperatorTree) -> np.typing.NDArray[np.float64]:
    """Summed durations of the device work that each operator launched itself."""
    events = trace.events
    launched = launches.call_rows != NONE
    calls, work = launches.call_rows[launched], launches.work_rows[launched]
    owner = tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    owned = owner != NONE
    durations = events.duration_ns[work[owned]].astype(np.float64)
    return np.bincount(owner[owned], weights=durations, minlength=tree.rows.size).astype(np.float64)
