"""Tables of operators and kernels by name, and the utilisation figures of a device."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from traceadvisor.analysis.arithmetic.kernel_names import read_kernel_name
from traceadvisor.analysis.operators.inputs import read_inputs
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.stacks import Stacks
from traceadvisor.analysis.operators.tree import OperatorTree, call_operators
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int32, Int64, Mask, among, grouped, numbers_in, taken
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.location import Location
from traceadvisor.model.report import DeviceFigures, KernelRow, OperatorRow, PlaceRow, ShapeRow
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import StepTable
from traceadvisor.model.trace import Trace
from traceadvisor.text.cleaning import clipped

MOST_SHAPES = 4
MOST_PLACES = 3
"""Rows of input shapes and of places per operator."""

MOST_LOCATED_CALLS = 20_000
"""Calls whose place is looked up; the first ones stand for the rest."""

LONGEST_SHAPES = 120
"""Characters of the input shapes of one call."""


def operator_table(  # noqa: PLR0913  # the last two only limit it
    trace: Trace,
    launches: Launches,
    tree: OperatorTree,
    table: StepTable,
    *,
    most: int | None = None,
    stacks: Stacks | None = None,
) -> tuple[OperatorRow, ...]:
    """Return one row per operator name, over operators that start in the typical steps' host marks.

    Device time is that of work the operator itself launched; rows are sorted by the larger of host and device time.

    ``most``: rows to return; all by default. ``stacks``: where operators are called from; None to leave that out.
    """
    in_steps, steps = table.typical_marks.contains(tree.start_ns), len(table.typical)
    chosen = np.flatnonzero(in_steps)
    if not chosen.size or not steps:
        return ()
    device_ns = _device_time_ns(trace, launches, tree)
    host_ns, name = tree.self_time_ns().astype(np.float64), trace.events.name_id[tree.rows]
    names, group = grouped(name[chosen])
    calls = np.bincount(group)
    host = np.bincount(group, weights=host_ns[chosen])
    device = np.bincount(group, weights=device_ns[chosen])
    has_device = bool(launches.work_rows.size)
    order = np.argsort(-np.maximum(host, device), kind="stable")[:most]
    outermost = ~_is_inside_itself(tree, name)[chosen]
    host_total = np.bincount(group, weights=(tree.end_ns - tree.start_ns)[chosen] * outermost)
    device_total = np.bincount(group, weights=_with_inner(tree, device_ns)[chosen] * outermost)
    listed = taken(_Calls(tree.rows[chosen], group, host_ns[chosen], device_ns[chosen]), among(group, order))
    shapes = _by_shapes(trace, listed, steps, has_device=has_device)
    places = _by_place(stacks, listed, steps) if stacks is not None else {}
    return tuple(
        OperatorRow(
            trace.names[names[at]],
            int(calls[at]) / steps,
            float(host[at]) / steps,
            float(device[at]) / steps if has_device else None,
            float(host_total[at]) / steps,
            float(device_total[at]) / steps if has_device else None,
            shapes.get(at, ()),
            places.get(at, ()),
        )
        for at in order.tolist()
    )


def _is_inside_itself(tree: OperatorTree, name: Int64 | Int32) -> Mask:
    """Return whether each operator is called by one of the same name, whose total includes it already."""
    inside: Mask = (tree.parent != NONE) & (name == name[tree.parent])
    return inside


def _with_inner(tree: OperatorTree, value: Float64) -> Float64:
    """Return the value of each operator with those of the operators inside it.

    On its thread, these are the next ones that start before it ends.
    """
    before = np.concatenate(([0.0], np.cumsum(value)))
    last = np.empty(tree.rows.size, dtype=np.int64)
    for thread in numbers_in(tree.thread):
        first, end = np.searchsorted(tree.thread, [thread, thread + 1])
        inside = np.searchsorted(tree.start_ns[first:end], tree.end_ns[first:end], side="left")
        last[first:end] = first + np.maximum(inside, np.arange(end - first) + 1)
    total: Float64 = before[last] - before[:-1]
    return total


@frozen(eq=False)
class _Calls:
    """Calls of the operators of a table; arrays of shape ``(n,)``."""

    rows: Int64
    """Rows of the event table."""

    group: Int64
    """Number of the operator."""

    host_ns: Float64
    device_ns: Float64


def _by_shapes(trace: Trace, calls: _Calls, steps: int, *, has_device: bool) -> dict[int, tuple[ShapeRow, ...]]:
    """Return the rows by input shapes of each operator, most time first."""
    text = trace.details.dims_id.at(calls.rows, np.int32(NONE)).astype(np.int64)
    calls, text = taken(calls, text != NONE), text[text != NONE]
    key = calls.group * (len(trace.texts) + 1) + text
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    count = np.bincount(number)
    host, device = (np.bincount(number, weights=column) for column in (calls.host_ns, calls.device_ns))
    rows: dict[int, list[ShapeRow]] = {}
    for at in np.argsort(-np.maximum(host, device), kind="stable").tolist():
        mine = rows.setdefault(int(calls.group[first[at]]), [])
        if len(mine) < MOST_SHAPES and (shapes := _shapes_words(trace.texts[text[first[at]]])):
            on_device = float(device[at]) / steps if has_device else None
            mine.append(ShapeRow(shapes, int(count[at]) / steps, float(host[at]) / steps, on_device))
    return {group: tuple(found) for group, found in rows.items()}


def _shapes_words(text: str) -> str:
    """Return the shapes of the inputs that have one, ``[32, 3, 224, 224], [64]``."""
    shapes = (shape for shape in read_inputs(text, "", "").shapes if shape)
    return clipped(", ".join(f"[{', '.join(map(str, shape))}]" for shape in shapes), LONGEST_SHAPES)


def _by_place(stacks: Stacks, calls: _Calls, steps: int) -> dict[int, tuple[PlaceRow, ...]]:
    """Return where each operator is called, most calls first."""
    if not stacks.is_known or not calls.rows.size:
        return {}
    looked_up = calls.rows[:MOST_LOCATED_CALLS]
    scale = calls.rows.size / looked_up.size / steps
    locations = stacks.locations(looked_up)
    by_id = {id(location): location for location in locations}  # few: comparing them takes longer
    found: defaultdict[int, Counter[Location]] = defaultdict(Counter)
    pairs = zip(calls.group[: looked_up.size].tolist(), map(id, locations), strict=True)
    for (group, each), count in Counter(pairs).items():
        if (location := by_id[each]) is not None:
            found[group][location] += count
    return {
        group: tuple(PlaceRow(location, count * scale) for location, count in counts.most_common(MOST_PLACES))
        for group, counts in found.items()
    }


def _device_time_ns(trace: Trace, launches: Launches, tree: OperatorTree) -> np.typing.NDArray[np.float64]:
    """Return the summed durations of the device work that each operator launched itself."""
    events = trace.events
    launched = launches.call_rows != NONE
    calls, work = launches.call_rows[launched], launches.work_rows[launched]
    owner = call_operators(events)[calls]
    owned = owner != NONE
    durations = events.duration_ns[work[owned]].astype(np.float64)
    return np.bincount(owner[owned], weights=durations, minlength=tree.rows.size).astype(np.float64)


def kernel_table(trace: Trace, launches: Launches, table: StepTable) -> tuple[KernelRow, ...]:
    """Return one row per kernel name, over kernels that start in the typical windows, longest total first."""
    events, steps = trace.events, len(table.typical)
    kinds = events.kind[launches.work_rows]
    rows = launches.work_rows[(kinds == Kind.KERNEL) | (kinds == Kind.COLLECTIVE)]
    rows = events.within(table.typical_windows, rows)
    if not rows.size or not steps:
        return ()
    names, group = grouped(events.name_id[rows])
    duration = events.duration_ns[rows].astype(np.float64)
    calls, total = np.bincount(group), np.bincount(group, weights=duration)
    whole = max(total.sum(), 1.0)
    shortest, longest = np.full(names.size, np.iinfo(np.int64).max), np.zeros(names.size, dtype=np.int64)
    np.minimum.at(shortest, group, events.duration_ns[rows])
    np.maximum.at(longest, group, events.duration_ns[rows])
    blocks = _weighted_mean(trace.details.blocks_per_sm.at(rows, np.float64("nan")), duration, group)
    occupancy = _weighted_mean(trace.details.occupancy_percent.at(rows, np.float64("nan")), duration, group)
    return tuple(
        KernelRow(
            trace.names[names[at]],
            int(calls[at]) / steps,
            float(total[at]) / steps,
            float(total[at] / whole),
            blocks[at],
            None if (percent := occupancy[at]) is None else percent / 100,
            int(shortest[at]),
            int(longest[at]),
            _uses_tensor_cores(trace.names[names[at]]),
        )
        for at in np.argsort(-total, kind="stable").tolist()
    )


def _uses_tensor_cores(name: str) -> bool | None:
    """Return whether a kernel uses tensor cores; None for an unknown name. Other work uses none."""
    told = read_kernel_name(name)
    return False if told.is_plain else told.tensor_cores


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
    inside_ns = windows.measure_in(starts, ends).astype(np.float64)
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
