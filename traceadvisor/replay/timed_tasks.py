"""What the host threads do in some steps, with recorded times: work is told from them, and then they are dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceadvisor.analysis.observation import Observation
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.replay.recorded_calls import Waits, Work, pageable_rows
from traceadvisor.replay.step_graph import Action


@dataclass(frozen=True, slots=True, eq=False)
class TimedTasks:
    """Host tasks as recorded; arrays of shape ``(n,)``; columns as of ``HostTasks``."""

    row: Int64
    thread: Int64
    start_ns: Int64
    end_ns: Int64
    action: NDArray[np.int8]
    first: Int64
    count: Int64

    def take(self, chosen: Int64 | Mask) -> TimedTasks:
        """Some of them, in the order given."""
        return TimedTasks(*(getattr(self, name)[chosen] for name in TimedTasks.__slots__))

    @staticmethod
    def joined(*parts: TimedTasks) -> TimedTasks:
        """Several together."""
        return TimedTasks(*(np.concatenate([getattr(part, name) for part in parts]) for name in TimedTasks.__slots__))


def timed_tasks(
    observation: Observation, steps: tuple[Step, ...], work: Work, waits: Waits, optimizer: SpanSet
) -> tuple[TimedTasks, Int64]:
    """The tasks that lie in the steps' marks, in order of time, each with the position of its step.

    What a task launches or waits for is told by positions in ``work``.
    """
    return _of_steps(
        TimedTasks.joined(
            _marks(observation.thread, steps),
            _boundaries(observation.thread, observation.loading),
            _boundaries(observation.thread, optimizer),
            _launches(observation, work),
            _waits(observation, waits),
        ),
        steps,
    )


def spliced(tasks: TimedTasks, step: Int64, steps: tuple[Step, ...]) -> TimedTasks:
    """The times as though the steps had followed one another; what lies between neighbours stays."""
    shift, shifts = 0, []
    for position, one in enumerate(steps):
        before = steps[position - 1] if position else None
        if before and before.index + 1 != one.index:
            shift += one.host_start_ns - before.host_end_ns
        shifts.append(shift)
    moved = np.array(shifts, dtype=np.int64)[step]
    return TimedTasks(
        tasks.row, tasks.thread, tasks.start_ns - moved, tasks.end_ns - moved, tasks.action, tasks.first, tasks.count
    )


def _marks(thread: int, steps: tuple[Step, ...]) -> TimedTasks:
    starts = np.array([step.host_start_ns for step in steps], dtype=np.int64)
    ends = np.array([step.host_end_ns for step in steps], dtype=np.int64)
    return TimedTasks.joined(_instants(thread, starts, Action.STEP_START), _instants(thread, ends, Action.STEP_END))


def _boundaries(thread: int, spans: SpanSet) -> TimedTasks:
    return _instants(thread, np.concatenate((spans.starts_ns, spans.ends_ns)), Action.NOTHING)


def _instants(thread: int, at_ns: Int64, action: Action) -> TimedTasks:
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
    waiting = np.isin(rows, pageable_rows(observation.trace, observation.launches))
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
    """Those that lie in the steps' marks, in order of time, each with the position of its step."""
    order = {Action.STEP_END: 0, Action.STEP_START: 1, Action.NOTHING: 2}
    rank = np.array([order.get(action, 3) for action in Action])[tasks.action]
    tasks = tasks.take(np.lexsort((rank, tasks.start_ns)))
    starts = np.array([step.host_start_ns for step in steps])
    ends = np.array([step.host_end_ns for step in steps])
    at_end = tasks.action == Action.STEP_END
    step = np.searchsorted(starts, tasks.start_ns - at_end, side="right") - 1
    inside = (step >= 0) & ((tasks.start_ns < ends[step]) | at_end)
    return tasks.take(inside), step[inside]
