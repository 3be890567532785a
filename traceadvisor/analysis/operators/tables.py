"""Tables of operators and kernels by name, and the utilisation figures of a device."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.report import DeviceFigures, KernelRow, OperatorRow
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import StepTable
from traceadvisor.model.trace import Trace


def operator_table(trace: Trace, launches: Launches, tree: OperatorTree, table: StepTable) -> tuple[OperatorRow, ...]:
    """Return one row per operator name, over operators that start in the typical steps' host marks.

    Device time is that of work the operator itself launched; rows are sorted by the larger of host and device time.
    """
    chosen, steps = table.typical_marks.contains(tree.start_ns), len(table.typical)
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
    """Return the summed durations of the device work that each operator launched itself."""
    events = trace.events
    launched = launches.call_rows != NONE
    calls, work = launches.call_rows[launched], launches.work_rows[launched]
    owner = tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    owned = owner != NONE
    durations = events.duration_ns[work[owned]].astype(np.float64)
    return np.bincount(owner[owned], weights=durations, minlength=tree.rows.size).astype(np.float64)


def kernel_table(trace: Trace, launches: Launches, table: StepTable) -> tuple[KernelRow, ...]:
    """Return one row per kernel name, over kernels that start in the typical windows, longest total first."""
    events, steps = trace.events, len(table.typical)
    kinds = events.kind[launches.work_rows]
    rows = launches.work_rows[(kinds == Kind.KERNEL) | (kinds == Kind.COLLECTIVE)]
    rows = rows[table.typical_windows.contains(events.start_ns[rows])]
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
    """Return the mean of the known values by group; None for a group without any."""
    known = np.isfinite(values)
    count = int(group.max()) + 1
    weight = np.bincount(group[known], weights=weights[known], minlength=count)
    total = np.bincount(group[known], weights=(values * weights)[known], minlength=count)
    return [float(total[at] / weight[at]) if weight[at] else None for at in range(count)]


def device_figures(trace: Trace, launches: Launches, windows: SpanSet, unknown: SpanSet) -> DeviceFigures:
    """Return busy share, SM efficiency and achieved occupancy of one device over some windows.

    Time in which the recording does not show whether the device worked, ``unknown``, makes the busy share a range.

    These are the definitions of the TensorBoard profiler plugin. The busy share is the union of all kernels and
    collectives. SM efficiency is the mean over time of the blocks
    per SM of the kernels that run, summed over streams and capped at 1, idle time counting as 0. Achieved occupancy is
    the mean of the profiler's estimates, weighted by kernel duration.
    """
    events = trace.events
    kinds = events.kind[launches.work_rows]
    kernels = launches.work_rows[(kinds == Kind.KERNEL) | (kinds == Kind.COLLECTIVE)]
    if not windows or not launches.work_rows.size:
        return DeviceFigures(None, None, None)
    starts, ends = events.start_ns[kernels], events.end_ns[kernels]
    busy_ns, unknown_ns = (SpanSet.union_of(starts, ends) & windows).total_ns, (unknown & windows).total_ns
    blocks = trace.details.blocks_per_sm.at(kernels, np.float64("nan"))
    occupancy = trace.details.occupancy_percent.at(kernels, np.float64("nan"))
    inside_ns = (windows.measure_until(ends) - windows.measure_until(starts)).astype(np.float64)
    known = np.isfinite(occupancy) & (occupancy >= 0) & (inside_ns > 0)
    return DeviceFigures(
        busy_share=busy_ns / windows.total_ns,
        sm_efficiency_share=_sm_efficiency(starts, ends, blocks, windows),
        achieved_occupancy_share=float(np.average(occupancy[known], weights=inside_ns[known])) / 100
        if known.any()
        else None,
        busy_share_high=(busy_ns + unknown_ns) / windows.total_ns if unknown_ns else None,
    )


def _sm_efficiency(
    starts: np.typing.NDArray[np.int64], ends: np.typing.NDArray[np.int64], blocks: Float64, windows: SpanSet
) -> float | None:
    known = blocks > 0
    if not known.any():
        return None
    instants = np.concatenate((starts[known], ends[known]))
    order = np.argsort(instants, kind="stable")
    level = np.concatenate((blocks[known], -blocks[known]))[order].cumsum()
    lengths = np.diff(windows.measure_until(instants[order]))
    return float((np.minimum(level[:-1], 1.0) * lengths).sum()) / windows.total_ns
