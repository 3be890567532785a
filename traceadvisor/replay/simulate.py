"""Run a task graph: what host and device do, and how long the steps take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.replay.step_graph import Action, StepGraph, Workers

_UNLIMITED = 1 << 60

_LEAST_IN_A_ROW = 64
"""Fewer launches in a row are faster one by one."""

_NOTHING, _LAUNCH_AND_WAIT = int(Action.NOTHING), int(Action.LAUNCH_AND_WAIT)
_LAUNCHES = (int(Action.LAUNCH), _LAUNCH_AND_WAIT)
_WAIT, _WAIT_ALL = int(Action.WAIT), int(Action.WAIT_ALL)
_STEP_START, _STEP_END, _FETCH = int(Action.STEP_START), int(Action.STEP_END), int(Action.FETCH)


@frozen
class Replayed:
    """The steps of one run of a graph."""

    durations_ns: tuple[int, ...]
    """Window of each step: from the previous step's end, or the host's start, until host and device are done."""

    def interior_mean_ns(self) -> float:
        """Return the mean over steps other than the first and last; over all if there are no others."""
        inner = self.durations_ns[1:-1] or self.durations_ns
        return sum(inner) / max(len(inner), 1)


def simulate(graph: StepGraph) -> Replayed:
    """Run all tasks, each as soon as its dependencies are done."""
    return _Simulation(graph).run()


def device_ends_ns(graph: StepGraph) -> Int64:
    """Return when each device task of a graph ends in the simulation; shape ``(m,)``."""
    simulation = _Simulation(graph)
    simulation.run()
    return simulation.device.ends_ns


class _Simulation:
    """Host threads and a device that run the tasks of a graph.

    Host tasks run in recorded order, which all dependencies follow: a launch precedes its device tasks, a stream keeps
    the order of launches, and a wait is for earlier launches. So one pass is enough. In a long row of launches only a
    full queue can delay a task, by launches before the row. So sums and maxima of whole arrays give all its times.
    """

    def __init__(self, graph: StepGraph) -> None:
        self.device = _Device(graph)
        self._host, self._rows, self._wait_call = graph.host, _launch_rows(graph), graph.constants.wait_call_ns
        self._batches = _Batches(graph.workers)
        self._clocks = [0] * graph.thread_count
        steps = [0] * graph.step_count
        self._host_starts, self._host_ends, self._device_ends = steps, steps.copy(), steps.copy()

    def run(self) -> Replayed:
        """Run all tasks and return the steps."""
        position = 0
        for begin, end in self._rows:
            self._one_by_one(position, begin)
            self._in_a_row(begin, end)
            position = end
        self._one_by_one(position, len(self._host))
        return Replayed(_windows(self._host_starts, self._host_ends, self._device_ends))

    def _in_a_row(self, begin: int, end: int) -> None:
        """Run a row of launches, no more of them than the queue holds."""
        host = self._host
        is_launch = host.action[begin:end] == Action.LAUNCH
        tasks = host.first[begin:end][is_launch]
        spent_ns = np.cumsum(host.work_ns[begin:end] + np.where(is_launch, host.call_ns[begin:end], 0))
        delayed_ns = np.full(end - begin, self._clocks[int(host.after[begin])])
        delayed_ns[is_launch] = np.maximum(delayed_ns[is_launch], self.device.free_ns(tasks) - spent_ns[is_launch])
        now_ns = spent_ns + np.maximum.accumulate(delayed_ns)
        done_ns = self.device.launch_in_a_row(now_ns[is_launch], tasks)
        step = int(host.step[begin])
        self._clocks[int(host.thread[begin])] = int(now_ns[-1])
        self._device_ends[step] = max(self._device_ends[step], int(done_ns.max(initial=0)))

    def _one_by_one(self, begin: int, end: int) -> None:  # one branch per action and no max(): calls double the time
        """Run any tasks, from one position to another."""
        host, device, clocks, device_ends = self._host, self.device, self._clocks, self._device_ends
        columns = (host.thread, host.after, host.work_ns, host.call_ns, host.action, host.first, host.count, host.step)
        parts = [column[begin:end].tolist() for column in columns]
        for thread, after, work, call, action, first, count, step in zip(*parts, strict=True):
            now: int = clocks[after] + work
            if action == _NOTHING:
                pass
            elif action in _LAUNCHES:
                done = device.launch(now + call, first, count)
                device_ends[step] = done if done > device_ends[step] else device_ends[step]
                now = done + self._wait_call if action == _LAUNCH_AND_WAIT else device.accepted
            elif action == _WAIT:
                now = max(now, device.ends[first] if first >= 0 else 0) + self._wait_call + call
            elif action == _WAIT_ALL:
                now = max(now, *device.stream_ends) + self._wait_call + call
            elif action == _STEP_START:
                self._host_starts[step] = now
            elif action == _STEP_END:
                self._host_ends[step] = now
            elif action == _FETCH:
                now = self._batches.take(now) + call
            clocks[thread] = now


def _launch_rows(graph: StepGraph) -> list[tuple[int, int]]:
    """Return the begin and end of each long row of tasks that only launch single tasks to one stream, or do nothing.

    A row is of one thread and step, and none of its launched tasks waits for another stream.
    """
    host, device = graph.host, graph.device
    if len(host) < _LEAST_IN_A_ROW:
        return []
    launching = ((host.action == Action.LAUNCH) & (host.count == 1)).nonzero()[0]
    if launching.size < _LEAST_IN_A_ROW:
        return []
    first = host.first[launching]
    simple = host.action == Action.NOTHING
    simple[launching] = device.after[first] < 0
    continues = (host.after == host.thread) & simple
    continues[1:] &= simple[:-1] & (host.thread[1:] == host.thread[:-1]) & (host.step[1:] == host.step[:-1])
    continues[:1] = False
    continues[launching[1:][device.stream[first[1:]] != device.stream[first[:-1]]]] = False
    begins = (simple & ~continues).nonzero()[0]
    ends = (simple & ~np.concatenate((continues[1:], [False]))).nonzero()[0] + 1
    is_long = ends - begins >= _LEAST_IN_A_ROW
    rows = zip(begins[is_long].tolist(), ends[is_long].tolist(), strict=True)
    depth = graph.constants.queue_depth or _UNLIMITED
    return [part for begin, end in rows for part in _parts(begin, end, launching, depth)]


def _parts(begin: int, end: int, launching: Int64, queue_depth: int) -> Iterator[tuple[int, int]]:
    """Cut a row so that the queue could hold the launches of each part."""
    launches = launching[launching.searchsorted(begin) : launching.searchsorted(end)]
    return pairwise((begin, *launches[queue_depth::queue_depth].tolist(), end))


class _Device:
    """Streams that run launched tasks, each in order."""

    def __init__(self, graph: StepGraph) -> None:
        tasks, constants = graph.device, graph.constants
        self.ends_ns = np.zeros(len(tasks), dtype=np.int64)
        """End of each task; 0 before its launch."""

        self.ends = self.ends_ns.data
        """The same, faster for single tasks."""

        self.stream_ends = [lead_ns - constants.queued_gap_ns for lead_ns in _leads_ns(graph)]
        self.accepted = 0
        """When the last launch by :meth:`launch` entered its queue; delayed if the queue was full."""

        self._tasks = tasks
        self._durations, self._streams, self._afters = tasks.duration_ns.data, tasks.stream.data, tasks.after.data
        self._latency, self._gap = constants.launch_latency_ns, constants.queued_gap_ns
        self._depth = constants.queue_depth or _UNLIMITED
        self._launch_ends_ns = np.empty(len(tasks), dtype=np.int64)
        """When the tasks of each launch are done, by stream and order of launches: no more of them than tasks."""

        self._launch_ends = self._launch_ends_ns.data
        counts = np.bincount(tasks.stream, minlength=graph.stream_count)
        self._firsts: list[int] = (counts.cumsum() - counts).tolist()
        """Place of each stream's first launch in it."""

        self._nexts = self._firsts.copy()
        """Place of each stream's next launch in it."""

    def launch(self, now: int, first: int, count: int) -> int:
        """Launch tasks now and return when they are done."""
        ends, stream_ends, gap = self.ends, self.stream_ends, self._gap
        queue, launches = self._streams[first], self._launch_ends
        place = self._nexts[queue]
        oldest = place - self._depth
        self.accepted = now = launches[oldest] if oldest >= self._firsts[queue] and launches[oldest] > now else now
        visible, done = now + self._latency, 0
        for task in range(first, first + count) if count != 1 else (first,):
            stream, other = self._streams[task], self._afters[task]
            last = stream_ends[stream] if other < 0 or ends[other] < stream_ends[stream] else ends[other]
            end = (visible if visible > last + gap else last + gap) + self._durations[task]
            ends[task] = stream_ends[stream] = end
            done = end if end > done else done
        launches[place] = done
        self._nexts[queue] = place + 1
        return done

    def free_ns(self, tasks: Int64) -> Int64:
        """Return when the queue of a stream has room for each of its next launches, 0 if it was never full.

        ``tasks``: the task of each launch, no more than the queue holds.
        """
        if not tasks.size:
            return tasks
        queue = self._streams[int(tasks[0])]
        oldest = np.arange(tasks.size) + (self._nexts[queue] - self._depth)
        return np.where(oldest >= self._firsts[queue], self._launch_ends_ns[np.maximum(oldest, 0)], 0)

    def launch_in_a_row(self, calls_ns: Int64, tasks: Int64) -> Int64:
        """Launch single tasks of one stream.

        ``calls_ns``: when each launch enters the queue. ``tasks``: the task of each launch.

        Returns:
            When each launched task is done.
        """
        if not tasks.size:
            return calls_ns
        queue = self._streams[int(tasks[0])]
        place = self._nexts[queue]
        taken_ns = np.cumsum(self._tasks.duration_ns[tasks] + self._gap)
        ready_ns = calls_ns + (self._latency - self._gap)
        ready_ns[1:] -= taken_ns[:-1]
        ready_ns[0] = max(int(ready_ns[0]), self.stream_ends[queue])
        done_ns = np.maximum.accumulate(ready_ns) + taken_ns
        self.ends_ns[tasks] = self._launch_ends_ns[place : place + tasks.size] = done_ns
        self._nexts[queue] = place + tasks.size
        self.stream_ends[queue] = int(done_ns[-1])
        return done_ns


def _leads_ns(graph: StepGraph) -> list[int]:
    """Return the work that each stream has left when the host begins."""
    leads_ns = [0] * graph.stream_count
    if any(graph.leads):
        work_ns = np.bincount(graph.device.stream, weights=graph.device.duration_ns, minlength=graph.stream_count)
        known = len(graph.leads)
        leads_ns[:known] = np.round(work_ns[:known] * graph.leads).astype(np.int64).tolist()
    return leads_ns


class _Batches:
    """Ready times of batches that workers make ahead of the loop.

    Workers start one after another, so batches arrive evenly; a batch starts when its queue slot is free.
    """

    def __init__(self, workers: Workers | None) -> None:
        self._count = workers.count if workers else 0
        self._ahead = workers.ahead if workers else 0
        self._load_ns = workers.load_ns if workers else ()
        self._ready = 0
        self._taken: list[int] = []

    def take(self, now: int) -> int:
        """Request the next batch now and return when it is available."""
        number = len(self._taken)
        load = self._load_ns[number]
        self._ready += load // self._count
        if number >= self._ahead:
            self._ready = max(self._ready, self._taken[number - self._ahead] + load)
        self._taken.append(max(now, self._ready))
        return self._taken[-1]


def _windows(host_starts: list[int], host_ends: list[int], device_ends: list[int]) -> tuple[int, ...]:
    """Cut windows like recorded ones: a step begins where the previous one ended."""
    durations, end = [], 0
    for host_start, host_end, device_end in zip(host_starts, host_ends, device_ends, strict=True):
        start = max(end, host_start)
        end = max(start, host_end, device_end)
        durations.append(end - start)
    return tuple(durations)
