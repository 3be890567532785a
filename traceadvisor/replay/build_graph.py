"""Build the task graph of some recorded steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.frozen import frozen, replace
from traceadvisor.model.arrays import Int64, among, joined, one_of, taken
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.replay.recorded_calls import (
    Waits,
    Work,
    measure,
    pageable_rows,
    recorded_waits,
    recorded_work,
    stream_dependencies,
)
from traceadvisor.replay.step_graph import Action, Constants, DeviceTasks, HostTasks, Phase, StepGraph


def build_graph(observation: Observation, steps: tuple[Step, ...]) -> StepGraph:
    """Return the tasks of some steps, in order of time, as consecutive steps."""
    trace, events = observation.trace, observation.trace.events
    work = recorded_work(events, observation.launches)
    waits = recorded_waits(trace, observation.launches, work)
    after_other = stream_dependencies(trace, work)
    constants = measure(trace, work, after_other, waits)
    optimizer = optimizer_steps(trace).own
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
    host = HostTasks(
        tasks.row, thread, after, work_ns, work_ns, work_ns, call_ns, tasks.action, phase, step, first, tasks.count
    )
    counts = (work.stream_count, threads.size + 1)
    has_workers = observation.loader is not None and not observation.loader.in_training_process
    leads = _leads(work, device, steps[0].host_start_ns)
    return StepGraph(
        host, device, constants, tuple(unexplained), recorded_ns, *counts, loader_has_workers=has_workers, leads=leads
    )


def _leads(work: Work, device: DeviceTasks, begin_ns: int) -> tuple[float, ...]:
    """Return what each stream had to do yet at a time, as a share of its work in the replayed steps."""
    before = work.call_start_ns < begin_ns
    stream = np.concatenate((work.stream[before], work.unlaunched_stream))
    left_ns = np.zeros(work.stream_count, dtype=np.int64)
    np.maximum.at(left_ns, stream, np.concatenate((work.end_ns[before], work.unlaunched_end_ns)) - begin_ns)
    own_ns = np.bincount(device.stream, weights=device.duration_ns, minlength=left_ns.size)
    return tuple((left_ns / np.maximum(own_ns, 1)).tolist())


def _phases(instants_ns: Int64, loading: SpanSet, optimizer: SpanSet) -> NDArray[np.int8]:
    """Return the phase of each task: at the end of its work, or at the start of its call if it has no work."""
    phases = np.where(optimizer.contains(instants_ns), Phase.OPTIMIZER, Phase.OTHER)
    return np.where(loading.contains(instants_ns), Phase.LOADING, phases).astype(np.int8)


def _call_times(tasks: TimedTasks, work: Work, waits: Waits, constants: Constants) -> Int64:
    """Return each call's own time: recorded for launches that were not delayed, else a constant; 0 for waits."""
    call_ns = tasks.end_ns - tasks.start_ns
    held_up = tasks.action == Action.LAUNCH_AND_WAIT
    if constants.queue_depth is not None:
        full = np.concatenate((work.in_flight >= constants.queue_depth, [False]))
        held_up |= (tasks.action == Action.LAUNCH) & full[tasks.first]
    call_ns = np.where(held_up, constants.launch_call_ns, call_ns)
    call_ns[one_of(tasks.action, Action.WAIT, Action.WAIT_ALL)] = 0
    freeing = among(tasks.row, waits.row[waits.is_free])
    own_ns = waits.own_ns[waits.row.searchsorted(tasks.row[freeing])]
    call_ns[freeing] = np.maximum(own_ns - constants.wait_call_ns, 0)
    return call_ns


def _own_wait_times(tasks: TimedTasks, work: Work, waits: Waits) -> Int64:
    """Return how long waiting calls take beyond the end of what they wait for; 0 for other tasks."""
    own = np.zeros(tasks.row.size, dtype=np.int64)
    waiting = among(tasks.row, waits.row[~waits.is_free])
    own[waiting] = waits.own_ns[waits.row.searchsorted(tasks.row[waiting])]
    copies = tasks.action == Action.LAUNCH_AND_WAIT
    first = tasks.first[copies]
    begun = np.maximum(tasks.start_ns[copies], work.previous_end_ns[first])
    own[copies] = tasks.end_ns[copies] - begun - (work.end_ns - work.start_ns)[first]
    return own


def _host_work(tasks: TimedTasks, thread: Int64) -> tuple[Int64, Int64]:
    """Return the thread that each task continues, and the host work in between.

    A thread that takes over from another continues that thread's work: the training thread hands the backward pass
    over to the autograd thread and resumes when it is done. A thread that waits for the device hands over nothing.
    """
    own_end = np.full(thread.size, tasks.start_ns[0], dtype=np.int64)
    before = np.maximum(np.arange(thread.size) - 1, 0)
    running_end = np.empty_like(own_end)
    for mine in positions_by(thread).values():
        running_end[mine] = np.maximum.accumulate(tasks.end_ns[mine])
        own_end[mine[1:]] = running_end[mine[:-1]]
    other_end = running_end[before]
    takes_over = thread[before] != thread
    is_waiting = one_of(tasks.action[before], Action.WAIT, Action.WAIT_ALL, Action.LAUNCH_AND_WAIT)
    takes_over &= ~(is_waiting & (other_end > tasks.start_ns))
    takes_over &= other_end >= own_end  # a thread that ended before this thread's last call handed nothing over
    since = np.where(takes_over, other_end, own_end)
    return np.where(takes_over, thread[before], thread), np.maximum(tasks.start_ns - since, 0)


def _device_tasks(
    observation: Observation, tasks: TimedTasks, step: Int64, work: Work, after_other: Int64
) -> tuple[Int64, DeviceTasks]:
    """Return the launched work in task order, and the first work that each task launches or waits for."""
    events, launching = observation.trace.events, tasks.count > 0
    kept = np.zeros(work.row.size, dtype=np.bool_)
    for offset in range(int(tasks.count.max(initial=0))):
        some = launching & (tasks.count > offset)
        kept[tasks.first[some] + offset] = True
    number = np.where(kept, kept.cumsum() - 1, NONE)
    after = after_other[kept]
    device = DeviceTasks(
        work.row[kept],
        work.stream[kept],
        (work.end_ns - work.start_ns)[kept],
        np.where(after == NONE, NONE, number[after]),
        events.kind[work.row[kept]],
        events.byte_count[work.row[kept]],
        step.repeat(tasks.count),
    )
    return np.where(tasks.first == NONE, NONE, np.concatenate((number, [NONE]))[tasks.first]), device


@frozen(eq=False)
class TimedTasks:
    """Host tasks with recorded times; arrays of shape ``(n,)``; columns as in ``HostTasks``."""

    row: Int64
    thread: Int64
    start_ns: Int64
    end_ns: Int64
    action: NDArray[np.int8]
    first: Int64
    count: Int64


def timed_tasks(
    observation: Observation, steps: tuple[Step, ...], work: Work, waits: Waits, optimizer: SpanSet
) -> tuple[TimedTasks, Int64]:
    """Return the tasks within the steps' marks, in order of time, each with the position of its step.

    What a task launches or waits for is given as positions in ``work``.
    """
    return _of_steps(
        joined(
            [
                _instants(observation.thread, [step.host_start_ns for step in steps], Action.STEP_START),
                _instants(observation.thread, [step.host_end_ns for step in steps], Action.STEP_END),
                *(
                    _instants(observation.thread, at_ns, Action.NOTHING)
                    for spans in (observation.loading, optimizer)
                    for at_ns in (spans.starts_ns, spans.ends_ns)
                ),
                _launches(observation, work),
                _waits(observation, waits),
            ]
        ),
        steps,
    )


def spliced(tasks: TimedTasks, step: Int64, steps: tuple[Step, ...]) -> TimedTasks:
    """Shift the times as if the steps were consecutive; gaps between neighbours stay."""
    shift, shifts = 0, []
    for position, one in enumerate(steps):
        before = steps[position - 1] if position else None
        if before and before.index + 1 != one.index:
            shift += one.host_start_ns - before.host_end_ns
        shifts.append(shift)
    moved = np.array(shifts, dtype=np.int64)[step]
    return replace(tasks, start_ns=tasks.start_ns - moved, end_ns=tasks.end_ns - moved)


def _instants(thread: int, instants_ns: Int64 | list[int], action: Action) -> TimedTasks:
    at_ns = np.array(instants_ns, dtype=np.int64)
    none = np.full(at_ns.size, NONE, dtype=np.int64)
    return TimedTasks(
        none,
        np.full(at_ns.size, thread, dtype=np.int64),
        at_ns,
        at_ns,
        np.full(at_ns.size, action, dtype=np.int8),
        none,
        np.zeros_like(none),
    )


def _launches(observation: Observation, work: Work) -> TimedTasks:
    events = observation.trace.events
    rows, first, count = np.unique(work.call_row, return_index=True, return_counts=True)
    waiting = among(rows, pageable_rows(observation.trace, observation.launches))
    return TimedTasks(
        rows,
        events.thread[rows].astype(np.int64),
        events.start_ns[rows],
        events.end_ns[rows],
        np.where(waiting, Action.LAUNCH_AND_WAIT, Action.LAUNCH).astype(np.int8),
        first.astype(np.int64),
        count.astype(np.int64),
    )


def _waits(observation: Observation, waits: Waits) -> TimedTasks:
    events = observation.trace.events
    return TimedTasks(
        waits.row,
        events.thread[waits.row].astype(np.int64),
        events.start_ns[waits.row],
        events.end_ns[waits.row],
        np.where(waits.is_all, Action.WAIT_ALL, Action.WAIT).astype(np.int8),
        waits.target,
        np.zeros_like(waits.row),
    )


def _of_steps(tasks: TimedTasks, steps: tuple[Step, ...]) -> tuple[TimedTasks, Int64]:
    """Return the tasks within the steps' marks, in order of time, each with the position of its step."""
    order = {Action.STEP_END: 0, Action.STEP_START: 1, Action.NOTHING: 2}
    rank = np.array([order.get(action, 3) for action in Action])[tasks.action]
    tasks = taken(tasks, np.lexsort((rank, tasks.start_ns)))
    starts = np.array([step.host_start_ns for step in steps])
    ends = np.array([step.host_end_ns for step in steps])
    at_end = tasks.action == Action.STEP_END
    step = starts.searchsorted(tasks.start_ns - at_end, side="right") - 1
    inside = (step >= 0) & ((tasks.start_ns < ends[step]) | at_end)
    return taken(tasks, inside), step[inside]
