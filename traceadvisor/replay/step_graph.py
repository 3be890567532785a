"""A few recorded steps as tasks of host and device, without any recorded start and without any recorded wait.

Which of the recorded steps are replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from statistics import median

import numpy as np
from numpy.typing import NDArray

from traceadvisor.model.arrays import Int64
from traceadvisor.model.steps import Step, StepTable


class Action(IntEnum):
    """What a host task does once its own work is done."""

    NOTHING = 0
    """It only separates work of one kind from work of another."""

    LAUNCH = 1
    """It gives the device its tasks and goes on."""

    LAUNCH_AND_WAIT = 2
    """It gives the device its tasks and waits for them: a copy from or to pageable memory."""

    WAIT = 3
    """It waits for one device task, and with it for all that went before on that stream."""

    WAIT_ALL = 4
    """It waits for everything that was given to the device."""

    STEP_START = 5
    STEP_END = 6
    FETCH = 7
    """It takes a batch from loader workers that run ahead of it."""


class Phase(IntEnum):
    """Where in the step host work is done."""

    OTHER = 0
    LOADING = 1
    """Inside the data loader's ``__next__``."""

    OPTIMIZER = 2
    """Inside ``Optimizer.step``."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What is the same for every task of a recording: medians over all of it, nanoseconds."""

    launch_latency_ns: int
    """From the end of a launch call to the start of its kernel on an idle device."""

    queued_gap_ns: int
    """From one kernel to the next that is already queued behind it, or waits for it on another stream."""

    launch_call_ns: int
    """What a launch call costs the host when nothing holds it up."""

    wait_call_ns: int
    """What a waiting call costs the host beside the wait: from the end of what it waited for to its return."""

    queue_depth: int | None
    """Launches that a stream's queue holds before the host has to wait; None where no such limit is known."""


@dataclass(frozen=True, slots=True, eq=False)
class HostTasks:
    """Host work in the order in which it was recorded over all threads; arrays of shape ``(n,)``."""

    row: Int64
    """The call's row of the event table; NONE where the task is no call."""

    thread: Int64
    """Number of the thread, 0 being the training thread."""

    after: Int64
    """The thread whose work it continues: another thread's where that one handed over."""

    work_ns: Int64
    """Host work before the call: operators, Python, calls that neither launch nor wait."""

    recorded_work_ns: Int64
    """The same as it was recorded, whatever an edit makes of it: by it an edit finds the work that it means. The replay
    never looks at it."""

    call_ns: Int64
    """The call's own time; 0 for calls that wait, which cost a constant."""

    action: NDArray[np.int8]
    phase: NDArray[np.int8]
    """Of the work before the call, and of the call."""

    step: Int64
    """Position of the step among those replayed."""

    first: Int64
    """The first device task that it launches, or the one that it waits for; NONE where there is none."""

    count: Int64
    """Device tasks that it launches, ``first`` onwards."""

    def __len__(self) -> int:
        return int(self.work_ns.size)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTasks:
    """Kernels, copies and memsets in the order in which they were launched; arrays of shape ``(m,)``."""

    row: Int64
    """Row of the event table."""

    stream: Int64
    """Number of the stream, from 0."""

    duration_ns: Int64
    after: Int64
    """A task of another stream that it waits for; NONE where there is none."""

    kind: NDArray[np.int8]
    """A :class:`~traceadvisor.model.events.Kind`."""

    byte_count: Int64
    """Bytes moved or set; NONE where not recorded."""

    step: Int64
    """Position of the step that launched it."""

    def __len__(self) -> int:
        return int(self.row.size)


@dataclass(frozen=True, slots=True)
class Workers:
    """Loader processes that make batches ahead of the training loop."""

    count: int
    ahead: int
    """Batches that they may be ahead of the loop."""

    load_ns: tuple[int, ...]
    """One process's time to make each batch, in the order in which they are taken."""


@dataclass(frozen=True, slots=True, eq=False)
class StepGraph:
    """Steps as tasks. What-ifs are functions from one graph to another."""

    host: HostTasks
    device: DeviceTasks
    constants: Constants
    unexplained_ns: tuple[int, ...]
    """Per step, recorded time in waits for the device beyond the end of what they are known to wait for."""

    recorded_ns: Int64
    """When the work of each host task was over in the recording, since the trace's first event: by it an edit finds the
    work that it means. The replay never looks at it."""

    stream_count: int
    thread_count: int
    loader_has_workers: bool = False
    """Whether processes other than the training one make batches, be they fast or slow."""

    workers: Workers | None = None
    """Who makes the batches that are taken by ``FETCH``; None where there is no such task."""

    @property
    def step_count(self) -> int:
        """Steps that are replayed."""
        return len(self.unexplained_ns)


MOST_STEPS = 8
"""More of them tell nothing new and cost time."""

FEWEST_STEPS = 3
"""One to lead in, one to look at, one to follow."""


def chosen_steps(table: StepTable) -> tuple[Step, ...]:
    """The kept steps nearest to the median, in order of time; those of no length hold nothing to replay."""
    filled = [step for step in table.kept if step.host_end_ns > step.host_start_ns]
    if not filled:
        return ()
    middle = median(step.duration_ns for step in filled)
    nearest = sorted(filled, key=lambda step: abs(step.duration_ns - middle))[:MOST_STEPS]
    return tuple(sorted(nearest, key=lambda step: step.start_ns))


def measured_step_ns(table: StepTable) -> float | None:
    """Median of the kept steps, the first and the last apart where there are others; None where none is kept."""
    durations = [step.duration_ns for step in table.kept]
    return float(median(durations[1:-1] or durations)) if durations else None
