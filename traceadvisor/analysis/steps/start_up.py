"""Start-up: work that a run does once, and that a recording without a warm-up shows in its first step."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.compilation import compiling_rows, searching_rows
from traceadvisor.analysis.operators.names import name_mask, rows_named, rows_with_prefix
from traceadvisor.analysis.operators.runtime_calls import blocking_rows, profiler_stop_rows
from traceadvisor.analysis.operators.tree import OperatorTree, operator_tree
from traceadvisor.analysis.steps.detection import recording_extent
from traceadvisor.model.arrays import Int32, Int64, among, either, one_of, without
from traceadvisor.model.events import DEVICE_WORK, NONE, Kind
from traceadvisor.model.spans import SpanSet

LEAST_FIRST_CALL_NS = 1_000_000
"""A shorter first call costs little. Later calls of operators and of the runtime take microseconds."""

FIRST_TIMES_OTHERS = 20.0
"""A first call this many times as long as the median of the later ones loads, compiles or allocates something."""

_LOADS = re.compile(
    r"^(?:cu|cuda|hip)(?:Init|Ctx\w*Create|DevicePrimaryCtxRetain|SetDevice|ModuleLoad|LibraryLoad|Link(?:Create|Add))"
)
"""Calls that create a context or load code (CUDA driver API, 6.1 to 6.12; HIP has the same names)."""

_RESERVES = re.compile(r"^(?:cuda|cu|hip)(?:Mem)?(?:Malloc|HostAlloc|HostMalloc|MallocHost|Alloc|Create)")
_LAUNCHES_GRAPH = re.compile(r"GraphLaunch|GraphExec")
_ANY_LENGTH = re.compile(rf"{_LAUNCHES_GRAPH.pattern}|Memcpy")
"""Calls that take long each time if they hand over much: the only one of a recording may be no first one."""

_LAZY_LOADING = "Lazy Function Loading"

_ALLOCATES = ("aten::empty", "aten::empty_strided", "aten::new_empty")
"""Operators that only allocate: the first one creates the context."""


def start_up(observation: Observation) -> SpanSet:
    """Return the time of the host in start-up work, on any thread, in which the device does nothing.

    That is: compilation, search for convolution algorithms, contexts, modules and functions that are loaded, memory
    taken from the driver, long first calls, a first batch for which loader workers start, and the time before the first
    operator of the recording, in which the profiler starts. While the device works, whatever the host does or waits for
    costs nothing.
    """
    trace, events = observation.trace, observation.trace.events
    tree = operator_tree(events)
    rows = np.concatenate(
        (
            compiling_rows(trace, tree),
            searching_rows(trace, tree),
            rows_with_prefix(trace, Kind.OVERHEAD, _LAZY_LOADING),
            rows_named(trace, Kind.RUNTIME, lambda name: bool(_LOADS.match(name) or _RESERVES.match(name))),
        )
    )
    found = SpanSet.union_all(
        (
            events.spans(rows),
            _first_calls(observation),
            _first_launches(observation),
            _first_operators(observation, tree),
            _first_batch(observation),
            _lead_in(observation),
        )
    )
    return found - events.spans(events.rows(*DEVICE_WORK))


def _first_calls(observation: Observation) -> SpanSet:
    """Return long first runtime calls that do not wait for the device.

    The only call of its name counts, too, unless it copies or launches a graph.
    """
    trace, events = observation.trace, observation.trace.events
    calls = events.rows(Kind.RUNTIME)
    waiting = either(blocking_rows(trace, observation.launches), profiler_stop_rows(trace))
    calls = without(calls, waiting)
    if not calls.size:
        return SpanSet.empty()
    first, others_ns = _first_and_others(events.name_id[calls], events.duration_ns[calls])
    first_ns = events.duration_ns[calls[first]]
    has_any_length = name_mask(trace.names, _ANY_LENGTH.search)
    is_any_length = has_any_length[events.name_id[calls[first]]]
    is_long = (first_ns >= LEAST_FIRST_CALL_NS) & (first_ns >= FIRST_TIMES_OTHERS * np.nan_to_num(others_ns))
    return events.spans(calls[first[is_long & ~(is_any_length & np.isnan(others_ns))]])


def _first_launches(observation: Observation) -> SpanSet:
    """Return long first launches of a kernel while the device is idle: its code is loaded.

    A launch that takes long while the device is busy may wait for room in the queue. A graph launches all its kernels.
    A copy loads no code.
    """
    events, launches = observation.trace.events, observation.launches
    if not launches.work_rows.size:
        return SpanSet.empty()
    graphs = rows_named(observation.trace, Kind.RUNTIME, _LAUNCHES_GRAPH.search)
    is_kernel = one_of(events.kind[launches.work_rows], Kind.KERNEL, Kind.COLLECTIVE)
    launched = is_kernel & (launches.call_rows != NONE) & ~among(launches.call_rows, graphs)
    work, calls = launches.work_rows[launched], launches.call_rows[launched]
    order = np.argsort(events.start_ns[calls], kind="stable")
    work, calls = work[order], calls[order]
    _, first = np.unique(events.name_id[work], return_index=True)
    idle = ~events.spans(launches.work_rows).contains(events.start_ns[calls[first]])
    usual_ns = float(np.median(events.duration_ns[calls])) if calls.size else 0.0
    durations_ns = events.duration_ns[calls[first]]
    is_long = (durations_ns >= LEAST_FIRST_CALL_NS) & (durations_ns >= FIRST_TIMES_OTHERS * usual_ns)
    waiting = np.isin(calls[first], blocking_rows(observation.trace, launches))
    return events.spans(calls[first[idle & is_long & ~waiting]])


def _first_operators(observation: Observation, tree: OperatorTree) -> SpanSet:
    """Return the own time of long first operators, without the operators and runtime calls inside them.

    An operator that runs only once counts only if it just allocates: others may take long in every step.
    """
    trace, events = observation.trace, observation.trace.events
    if not tree.rows.size:
        return SpanSet.empty()
    own_ns = tree.self_time_ns()
    calls = events.rows(Kind.RUNTIME)
    inside = tree.enclosing(events.thread[calls].astype(np.int64), events.start_ns[calls])
    np.subtract.at(own_ns, inside[inside != NONE], events.duration_ns[calls[inside != NONE]])
    by_start = np.argsort(tree.start_ns, kind="stable")
    names = events.name_id[tree.rows[by_start]]
    first, others_ns = _first_and_others(names, own_ns[by_start])
    first = by_start[first]
    allocates = name_mask(trace.names, _ALLOCATES.__contains__)[events.name_id[tree.rows[first]]]
    later = np.where(np.isnan(others_ns), np.where(allocates, 0.0, np.inf), others_ns)
    is_long = (own_ns[first] >= LEAST_FIRST_CALL_NS) & (own_ns[first] >= FIRST_TIMES_OTHERS * later)
    rows = tree.rows[first[is_long]]
    children = np.flatnonzero(np.isin(tree.parent, first[is_long]))
    return events.spans(rows) - events.spans(tree.rows[children])


def _first_and_others(names: Int32, durations_ns: Int64) -> tuple[Int64, np.typing.NDArray[np.float64]]:
    """Return the position of the first event of each name, and the median duration of its later ones; NaN if none."""
    order = np.lexsort((np.arange(names.size), names))
    begins = np.flatnonzero(np.append(True, names[order][1:] != names[order][:-1])) if names.size else order
    groups = np.split(durations_ns[order], begins[1:])
    medians = [float(np.median(group[1:])) if group.size > 1 else np.nan for group in groups if group.size]
    return order[begins], np.array(medians, dtype=np.float64)


def _first_batch(observation: Observation) -> SpanSet:
    """Return a long first ``__next__`` of a loader with workers, which starts them.

    A recording with step marks may begin after the first batch. So without later batches to compare with, the only one
    counts if there are no marks.
    """
    trace, events, loader = observation.trace, observation.trace.events, observation.loader
    if loader is None or loader.in_training_process or not loader.rows.size:
        return SpanSet.empty()
    first, later = loader.rows[:1], loader.rows[1:]
    is_marked = rows_with_prefix(trace, Kind.ANNOTATION, "ProfilerStep#").size > 0
    usual_ns = float(np.median(events.duration_ns[later])) if later.size else float("inf") if is_marked else 0.0
    first_ns = int(events.duration_ns[first[0]])
    is_long = first_ns >= LEAST_FIRST_CALL_NS and first_ns >= FIRST_TIMES_OTHERS * usual_ns
    return events.spans(first) if is_long else SpanSet.empty()


def _lead_in(observation: Observation) -> SpanSet:
    """Return the time before the first event of the host, if the recording begins with a step mark."""
    trace, events = observation.trace, observation.trace.events
    start, _ = recording_extent(trace)
    marks = rows_with_prefix(trace, Kind.ANNOTATION, "ProfilerStep#")
    if not marks.size or int(events.start_ns[marks[0]]) > start:
        return SpanSet.empty()
    rows = without(events.rows(Kind.OPERATOR, Kind.RUNTIME, Kind.ANNOTATION), marks)
    starts = (events.start_ns[rows], trace.python_calls.start_ns)
    first = min((int(each.min()) for each in starts if each.size), default=start)
    return SpanSet.of((start, first))
