"""A few recorded steps as tasks of host and device, without recorded starts and waits, and their selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from statistics import median
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Code, Int64
from traceadvisor.model.once import Known
from traceadvisor.model.steps import Step, StepTable

Result = TypeVar("Result")


class Action(Code):
    """Action of a host task after its own work."""

    NOTHING = 0
    """Only separates work of different kinds."""

    LAUNCH = 1
    """Launches its device tasks and continues."""

    LAUNCH_AND_WAIT = 2
    """Launches its device tasks and waits for them: a copy from or to pageable memory."""

    WAIT = 3
    """Waits for one device task, and so for everything before it on that stream."""

    WAIT_ALL = 4
    """Waits for all launched device tasks."""

    STEP_START = 5
    STEP_END = 6
    FETCH = 7
    """Takes a batch from loader workers that run ahead."""


class Phase(Code):
    """The phase of the step that host work belongs to."""

    OTHER = 0
    LOADING = 1
    """Inside the data loader's ``__next__``."""

    OPTIMIZER = 2
    """Inside ``Optimizer.step``."""


@frozen
class Constants:
    """Constants of all tasks of a recording: medians, nanoseconds."""

    launch_latency_ns: int
    """From the end of a launch call to the start of its kernel on an idle device."""

    queued_gap_ns: int
    """From one kernel to the next that is already queued, or waits for it on another stream."""

    launch_call_ns: int
    """Host time of a launch call that is not delayed."""

    wait_call_ns: int
    """Host time of a waiting call after its target ended."""

    queue_depth: int | None
    """Launches that a stream's queue holds before the host has to wait; None if no limit is known."""


@frozen(eq=False)
class HostTasks:
    """Host work of all threads in recorded order; arrays of shape ``(n,)``."""

    row: Int64
    """The call's row of the event table; NONE if the task is not a call."""

    thread: Int64
    """Number of the thread, 0 being the training thread."""

    after: Int64
    """The thread whose work it continues: another thread if that one handed over."""

    work_ns: Int64
    """Host work before the call: operators, Python, calls that neither launch nor wait."""

    recorded_work_ns: Int64
    """The recorded value, never edited: edits use it to find the work they apply to. The replay ignores it."""

    unprofiled_work_ns: Int64
    """The work before any edit, without the profiler's time as far as that is known. The replay ignores it."""

    call_ns: Int64
    """The call's own time; 0 for calls that wait, which cost a constant."""

    action: NDArray[np.int8]
    phase: NDArray[np.int8]
    """Phase of the work before the call, and of the call."""

    step: Int64
    """Position of the step among those replayed."""

    first: Int64
    """The first device task that it launches, or the one it waits for; NONE if there is none."""

    count: Int64
    """Device tasks that it launches, ``first`` onwards."""

    def __len__(self) -> int:
        return int(self.work_ns.size)


@frozen(eq=False)
class DeviceTasks:
    """Kernels, copies and memsets in the order in which they were launched; arrays of shape ``(m,)``."""

    row: Int64
    """Row of the event table."""

    stream: Int64
    """Number of the stream, from 0."""

    duration_ns: Int64
    after: Int64
    """A task of another stream that it waits for; NONE if there is none."""

    kind: NDArray[np.int8]
    """A :class:`~traceadvisor.model.events.Kind`."""

    byte_count: Int64
    """Bytes moved or set; NONE where not recorded."""

    step: Int64
    """Position of the step that launched it."""

    def __len__(self) -> int:
        return int(self.row.size)


@frozen
class Workers:
    """Loader processes that make batches ahead of the loop."""

    count: int
    ahead: int
    """Batches that they may be ahead."""

    load_ns: tuple[int, ...]
    """Time of one process to make each batch, in the order of use."""


@frozen(eq=False)
class StepGraph:
    """Steps as tasks. A what-if is a function from one graph to another."""

    host: HostTasks
    device: DeviceTasks
    constants: Constants
    unexplained_ns: tuple[int, ...]
    """Per step, recorded time in waits for the device beyond the end of their known targets."""

    recorded_ns: Int64
    """Recorded end of each host task's work, since the trace's first event: edits use it to find the work they apply
    to. The replay ignores it."""

    stream_count: int
    thread_count: int
    loader_has_workers: bool = False
    """Whether other processes than the training one make batches."""

    workers: Workers | None = None
    """Workers that make the batches for ``FETCH``; None without such tasks."""

    events_ns: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Recorded starts of the events that the profiler's time lies at, ascending; empty where it lies evenly."""

    leads: tuple[float, ...] = ()
    """By stream, the work left when the host began the first step, as a share of its work in these steps: a host that
    runs ahead can stop for as long without delaying the device. A missing one is 0."""

    shared: Known = field(default_factory=Known, repr=False)
    """Results of functions of columns, of this graph and of those that edits made of it."""

    def once(self, compute: Callable[..., Result], *columns: Any) -> Result:
        """The result of a function of columns, and of what edits name, computed once for all graphs with the same ones.

        Most edits change few columns, and those of two scenarios or of two variants of the steps the same ones. They
        are the same objects then: nobody writes into the columns of a graph.
        """
        key, shared = (compute, *map(id, columns)), self.shared
        found = shared.pop(key, None) or (columns, compute(*columns))  # with the columns, whose ids stay theirs
        shared[key] = found
        if len(shared) > _MOST_SHARED:
            del shared[next(iter(shared))]
        result: Result = found[1]
        return result

    def begun(self, starts_ns: Int64) -> Int64:
        """Count recorded starts, ascending, in each host task's work and call; 0 for tasks without time."""
        bounds_ns = (self.recorded_ns - self.host.recorded_work_ns, self.recorded_ns)
        since, until = (np.searchsorted(starts_ns, at_ns, side="right") for at_ns in bounds_ns)
        count: Int64 = np.where(self.host.work_ns + self.host.call_ns > 0, until - since, 0)
        return count

    @property
    def step_count(self) -> int:
        """Number of replayed steps."""
        return len(self.unexplained_ns)

    @property
    def inner_steps(self) -> range:
        """Positions of the steps that are judged: without the first and the last, if there are others."""
        return _inner(self.step_count)

    @property
    def inner_tasks(self) -> tuple[slice, slice]:
        """Places of the host tasks and of the device tasks of these steps: both are in the order of steps."""
        return self.once(_inner_places, self.host.step, self.device.step, self.step_count)


def _inner(step_count: int) -> range:
    return range(1, step_count - 1) if step_count >= FEWEST_STEPS else range(step_count)


def _inner_places(host_steps: Int64, device_steps: Int64, step_count: int) -> tuple[slice, slice]:
    """The places of the inner steps among the host tasks and the device tasks."""
    inner = _inner(step_count)
    host, device = (steps.searchsorted((inner.start, inner.stop)) for steps in (host_steps, device_steps))
    return slice(*host.tolist()), slice(*device.tolist())


_MOST_SHARED = 32
"""Results of functions of columns that are kept: the last ones. The estimates of a small recording need as many."""

MOST_STEPS = 8
"""More steps add no information and cost time."""

FEWEST_STEPS = 3
"""One before, one to look at, one after."""


def chosen_steps(table: StepTable) -> tuple[Step, ...]:
    """Return the typical steps nearest to the median, in order of time; empty steps are skipped.

    The first and the last are only context. If fewer than three steps are typical, other kept steps take these places.
    """
    filled = [step for step in table.typical if step.host_end_ns > step.host_start_ns]
    if len(filled) < FEWEST_STEPS:
        kept = [step for step in table.kept if step.host_end_ns > step.host_start_ns]
        inner = kept[1:-1]
        filled = kept if inner and all(step.typical for step in inner) else filled
    if not filled:
        return ()
    middle = median(step.duration_ns for step in filled)
    nearest = sorted(filled, key=lambda step: abs(step.duration_ns - middle))[:MOST_STEPS]
    return tuple(sorted(nearest, key=lambda step: step.start_ns))
