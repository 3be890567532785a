"""Run a task graph: what host and device do, and how long the steps take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.replay.step_graph import Action, StepGraph, Workers

_UNLIMITED = 1 << 60

_LAUNCH_AND_WAIT = int(Action.LAUNCH_AND_WAIT)
_LAUNCHES = (int(Action.LAUNCH), _LAUNCH_AND_WAIT)
_WAIT, _WAIT_ALL = int(Action.WAIT), int(Action.WAIT_ALL)
_STEP_START, _STEP_END, _FETCH = int(Action.STEP_START), int(Action.STEP_END), int(Action.FETCH)


@dataclass(frozen=True, slots=True)
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
    return _run(graph)[0]


def device_ends_ns(graph: StepGraph) -> Int64:
    """Return when each device task of a graph ends in the simulation; shape ``(m,)``."""
    return np.array(_run(graph)[1], dtype=np.int64)


def _run(graph: StepGraph) -> tuple[Replayed, list[int]]:  # one branch per action and no max(): calls double the time
    """Run all tasks and return the steps, and the end of each device task.

    Host tasks run in recorded order, which all dependencies follow: a launch precedes its device tasks, a stream keeps
    the order of launches, and a wait is for earlier launches. So one pass is enough.
    """
    host, wait_call = graph.host, graph.constants.wait_call_ns
    device, batches = _Device(graph), _Batches(graph.workers)
    clocks = [0] * graph.thread_count
    host_starts, host_ends, device_ends = ([0] * graph.step_count for _ in range(3))
    columns = (host.thread, host.after, host.work_ns, host.call_ns, host.action, host.first, host.count, host.step)
    for thread, after, work, call, action, first, count, step in zip(*(c.tolist() for c in columns), strict=True):
        now: int = clocks[after] + work
        if action in _LAUNCHES:
            done = device.launch(now + call, first, count)
            device_ends[step] = done if done > device_ends[step] else device_ends[step]
            now = done + wait_call if action == _LAUNCH_AND_WAIT else device.accepted
        elif action == _WAIT:
            now = max(now, device.ends[first] if first >= 0 else 0) + wait_call + call
        elif action == _WAIT_ALL:
            now = max(now, *device.stream_ends) + wait_call + call
        elif action == _STEP_START:
            host_starts[step] = now
        elif action == _STEP_END:
            host_ends[step] = now
        elif action == _FETCH:
            now = batches.take(now) + call
        clocks[thread] = now
    return Replayed(_windows(host_starts, host_ends, device_ends)), device.ends


class _Device:
    """Streams that run launched tasks, each in order."""

    def __init__(self, graph: StepGraph) -> None:
        tasks, constants = graph.device, graph.constants
        self.ends = [0] * len(tasks)
        """End of each task; 0 before its launch."""

        self.stream_ends = [-constants.queued_gap_ns] * graph.stream_count
        self.accepted = 0
        """When the last launch entered its queue; delayed if the queue was full."""

        self._durations, self._streams = tasks.duration_ns.tolist(), tasks.stream.tolist()
        self._afters = tasks.after.tolist()
        self._latency, self._gap = constants.launch_latency_ns, constants.queued_gap_ns
        self._depth = constants.queue_depth or _UNLIMITED
        self._launch_ends: list[list[int]] = [[] for _ in range(graph.stream_count)]

    def launch(self, now: int, first: int, count: int) -> int:
        """Launch tasks now and return when they are done."""
        ends, stream_ends, gap = self.ends, self.stream_ends, self._gap
        launches = self._launch_ends[self._streams[first]]
        oldest = len(launches) - self._depth
        self.accepted = now = launches[oldest] if oldest >= 0 and launches[oldest] > now else now
        visible, done = now + self._latency, 0
        for task in range(first, first + count) if count != 1 else (first,):
            stream, other = self._streams[task], self._afters[task]
            last = stream_ends[stream] if other < 0 or ends[other] < stream_ends[stream] else ends[other]
            end = (visible if visible > last + gap else last + gap) + self._durations[task]
            ends[task] = stream_ends[stream] = end
            done = end if end > done else done
        launches.append(done)
        return done


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
