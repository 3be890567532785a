"""How well the device was used, by the definitions of the TensorBoard profiler plugin."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.model.arrays import Float64
from traceadvisor.model.events import Kind
from traceadvisor.model.report import DeviceFigures
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace


def device_figures(trace: Trace, launches: Launches, windows: SpanSet) -> DeviceFigures:
    """Busy share, SM efficiency and achieved occupancy of one device over some windows.

    The busy share is the union of all kernels, collectives included. SM efficiency is the mean over time of the blocks
    per SM of the kernels that run, summed over streams and capped at 1, idle time counting as 0. Achieved occupancy is
    the mean of the profiler's estimates, weighted by kernel duration.
    """
    events = trace.events
    kinds = events.kind[launches.work_rows]
    kernels = launches.work_rows[(kinds == Kind.KERNEL) | (kinds == Kind.COLLECTIVE)]
    if not windows or not launches.work_rows.size:
        return DeviceFigures(None, None, None)
    starts, ends = events.start_ns[kernels], events.end_ns[kernels]
    busy_ns = (SpanSet.union_of(starts, ends) & windows).total_ns
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
