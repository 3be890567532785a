"""From recorded steps to a graph of tasks.

The constants of a recording, measured as medians over all of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.names import name_mask, rows_with_prefix
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.model.trace import Trace
from traceadvisor.replay.recorded_calls import Waits, Work, recorded_waits, recorded_work, stream_dependencies
from traceadvisor.replay.step_graph import Action, Constants, DeviceTasks, HostTasks, Phase, StepGraph
from traceadvisor.replay.timed_tasks import TimedTasks, spliced, timed_tasks


def build_graph(observation: Observation, steps: tuple[Step, ...]) -> StepGraph:
    """The tasks of some steps, in order of time, as one run of steps."""
    trace, events = observation.trace, observation.trace.events
    work = recorded_work(events, observation.launches)
    waits = recorded_waits(trace, observation.launches, work)
    after_other = stream_dependencies(trace, work)
    constants = measure(trace, work, after_other, waits)
    optimizer = events.spans(rows_with_prefix(trace, Kind.ANNOTATION, "Optimizer.step#"))
    tasks, step = timed_tasks(observation, steps, work, waits, optimizer)
    call_ns = _call_times(tasks, work, waits, constants)
    excess_ns = np.maximum(_own_wait_times(tasks, work, waits) - constants.wait_call_ns, 0)
    unexplained = np.bincount(step, weights=excess_ns, minlength=len(steps)).astype(np.int64).tolist()
    recorded_ns, tasks = tasks.start_ns, spliced(tasks, step, steps)
    threads, thread = np.unique(tasks.thread, return_inverse=True)
    thread = np.where(tasks.thread == observation.thread, 0, 1 + thread)
    after, work_ns = _host_work(tasks, thread)
    phase = _phases(np.where(work_ns > 0, recorded_ns - 1, recorded_ns), observation.loading, optimizer)
    first, device = _device_tasks(observation, tasks, step, work, after_other)
    host = HostTasks(tasks.row, thread, after, work_ns, work_ns, call_ns, tasks.action, phase, step, first, tasks.count)
    counts = (work.stream_count, threads.size + 1)
    has_workers = observation.loader is not None and not observation.loader.in_training_process
    return StepGraph(host, device, constants, tuple(unexplained), recorded_ns, *counts, loader_has_workers=has_workers)


def _phases(instants_ns: Int64, loading: SpanSet, optimizer: SpanSet) -> NDArray[np.int8]:
    """Where each task's work was done, told by its last instant; where there is none, by the first of the call."""
    phases = np.where(optimizer.contains(instants_ns), Phase.OPTIMIZER, Phase.OTHER)
    return np.where(loading.contains(instants_ns), Phase.LOADING, phases).astype(np.int8)


def _call_times(tasks: TimedTasks, work: Work, waits: Waits, constants: Constants) -> Int64:
    """Each call's own time: as recorded for launches that nothing held up, else the constant; nothing for waits."""
    call_ns = tasks.end_ns - tasks.start_ns
    held_up = tasks.action == Action.LAUNCH_AND_WAIT
    if constants.queue_depth is not None:
        full = np.append(work.in_flight() >= constants.queue_depth, False)
        held_up |= (tasks.action == Action.LAUNCH) & full[tasks.first]
    call_ns = np.where(held_up, constants.launch_call_ns, call_ns)
    call_ns[np.isin(tasks.action, (Action.WAIT, Action.WAIT_ALL))] = 0
    freeing = np.isin(tasks.row, waits.row[waits.is_free])
    own_ns = waits.own_ns[np.searchsorted(waits.row, tasks.row[freeing])]
    call_ns[freeing] = np.maximum(own_ns - constants.wait_call_ns, 0)
    return call_ns


def _own_wait_times(tasks: TimedTasks, work: Work, waits: Waits) -> Int64:
    """The time of waiting calls beyond the end of what they wait for; 0 for tasks that do not wait."""
    own = np.zeros(tasks.row.size, dtype=np.int64)
    waiting = np.isin(tasks.row, waits.row[~waits.is_free])
    own[waiting] = waits.own_ns[np.searchsorted(waits.row, tasks.row[waiting])]
    copies = tasks.action == Action.LAUNCH_AND_WAIT
    first = tasks.first[copies]
    begun = np.maximum(tasks.start_ns[copies], work.previous_end_ns[first])
    own[copies] = tasks.end_ns[copies] - begun - (work.end_ns - work.start_ns)[first]
    return own


def _host_work(tasks: TimedTasks, thread: Int64) -> tuple[Int64, Int64]:
    """For each task the thread that it continues, and the host work between.

    A thread that takes over from another continues that one's work: the training thread runs the backward pass by
    handing over to the autograd thread and goes on when that is done. A thread that waits for the device hands over to
    none.
    """
    own_end = np.full(thread.size, tasks.start_ns[0], dtype=np.int64)
    for number in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == number)
        own_end[mine[1:]] = np.maximum.accumulate(tasks.end_ns[mine])[:-1]
    before = np.maximum(np.arange(thread.size) - 1, 0)
    running_end = np.empty_like(own_end)
    for number in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == number)
        running_end[mine] = np.maximum.accumulate(tasks.end_ns[mine])
    other_end = running_end[before]
    takes_over = thread[before] != thread
    is_waiting = np.isin(tasks.action[before], (Action.WAIT, Action.WAIT_ALL, Action.LAUNCH_AND_WAIT))
    takes_over &= ~(is_waiting & (other_end > tasks.start_ns))
    takes_over &= other_end >= own_end  # who was done before this thread's own last call handed nothing over
    since = np.where(takes_over, other_end, own_end)
    return np.where(takes_over, thread[before], thread), np.maximum(tasks.start_ns - since, 0)


def _device_tasks(
    observation: Observation, tasks: TimedTasks, step: Int64, work: Work, after_other: Int64
) -> tuple[Int64, DeviceTasks]:
    """The work that the tasks launch, in their order, and each task's first of it or what it waits for."""
    events, launching = observation.trace.events, tasks.count > 0
    kept = np.zeros(work.row.size, dtype=np.bool_)
    for offset in range(int(tasks.count.max(initial=0))):
        some = launching & (tasks.count > offset)
        kept[tasks.first[some] + offset] = True
    number = np.where(kept, np.cumsum(kept) - 1, NONE)
    after = after_other[kept]
    device = DeviceTasks(
        work.row[kept],
        work.stream[kept],
        (work.end_ns - work.start_ns)[kept],
        np.where(after == NONE, NONE, number[after]),
        events.kind[work.row[kept]],
        events.byte_count[work.row[kept]],
        np.repeat(step, tasks.count),
    )
    return np.where(tasks.first == NONE, NONE, np.append(number, NONE)[tasks.first]), device


QUEUE_DEPTH = 1022
"""Launches in flight on a stream at which a CUDA launch call stalls.

Each of the long launch calls of a public recording of a V100 (torch, nanosecond time stamps) finds so many; that every
stream has a queue of its own: https://forums.developer.nvidia.com/t/68937. Recordings of HIP show no such limit.
"""

USUAL_LATENCY_NS, USUAL_GAP_NS, USUAL_CALL_NS, USUAL_WAIT_NS = 2_000, 1_000, 5_000, 7_000
"""What public recordings show, for a recording that has no case of its own."""

_QUEUED_NS = 20_000
"""A kernel whose launch call returned this long before the one ahead of it ended was surely queued."""

_LONGEST_LATENCY_NS = 100_000
"""What starts later than this after its launch waits for something; public recordings show latencies up to 40 us."""


def measure(trace: Trace, work: Work, after: Int64, waits: Waits) -> Constants:
    """Medians over the recording.

    Args:
        trace: the recording.
        work: its device work.
        after: for each of it, what it waits for on another stream; such work tells neither a latency nor a gap.
        waits: the calls that wait for it.
    """
    is_kernel = trace.events.kind[work.row] == Kind.KERNEL
    latency_ns = work.start_ns - work.call_end_ns
    dry = (after == NONE) & (work.previous_end_ns < work.call_start_ns) & (latency_ns < _LONGEST_LATENCY_NS)
    queued = is_kernel & (after == NONE) & (work.previous_end_ns > work.call_end_ns + _QUEUED_NS)
    is_hip = name_mask(trace.names, lambda name: name.startswith("hip"))[trace.events.name_id[work.call_row]]
    is_free = work.in_flight() < QUEUE_DEPTH
    return Constants(
        launch_latency_ns=_median(latency_ns[dry & is_kernel], _median(latency_ns[dry], USUAL_LATENCY_NS)),
        queued_gap_ns=_median((work.start_ns - work.previous_end_ns)[queued], USUAL_GAP_NS),
        launch_call_ns=_median((work.call_end_ns - work.call_start_ns)[is_kernel & is_free], USUAL_CALL_NS),
        wait_call_ns=_median(waits.own_ns[~waits.is_free], USUAL_WAIT_NS),
        queue_depth=None if is_hip.any() else QUEUE_DEPTH,
    )


def _median(values: Int64, usual_ns: int) -> int:
    return max(int(np.median(values)), 0) if values.size else usual_ns
