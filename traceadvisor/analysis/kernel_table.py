"""Kernels by name: how often they run and how long they take."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.launches import Launches
from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.events import Kind
from traceadvisor.model.report import KernelRow
from traceadvisor.model.steps import StepTable
from traceadvisor.model.trace import Trace


def kernel_table(trace: Trace, launches: Launches, table: StepTable) -> tuple[KernelRow, ...]:
    """One row a kernel name over those that start in the kept windows, longest total first."""
    events, steps = trace.events, len(table.kept)
    kinds = events.kind[launches.work_rows]
    rows = launches.work_rows[(kinds == Kind.KERNEL) | (kinds == Kind.COLLECTIVE)]
    rows = rows[table.kept_windows.contains(events.start_ns[rows])]
    if not rows.size or not steps:
        return ()
    names, group = np.unique(events.name_id[rows], return_inverse=True)
    duration = events.duration_ns[rows].astype(np.float64)
    calls, total = np.bincount(group), np.bincount(group, weights=duration)
    blocks = _weighted_mean(trace.details.blocks_per_sm.at(rows, np.float64("nan")), duration, group)
    occupancy = _weighted_mean(trace.details.occupancy_percent.at(rows, np.float64("nan")), duration, group)
    return tuple(
        KernelRow(
            trace.names[names[at]],
            int(calls[at]) / steps,
            float(total[at]) / steps,
            float(total[at] / max(total.sum(), 1.0)),
            blocks[at],
            None if (percent := occupancy[at]) is None else percent / 100,
        )
        for at in np.argsort(-total, kind="stable").tolist()
    )


def _weighted_mean(values: Float64, weights: Float64, group: Int64) -> list[float | None]:
    """Mean by group over the known values; None where a group has none."""
    known = np.isfinite(values)
    count = int(group.max()) + 1
    weight = np.bincount(group[known], weights=weights[known], minlength=count)
    total = np.bincount(group[known], weights=(values * weights)[known], minlength=count)
    return [float(total[at] / weight[at]) if weight[at] else None for at in range(count)]
