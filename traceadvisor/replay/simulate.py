"""Runs a graph of tasks: what the host and the device would do, and how long the steps would take."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Of each step's window: from the end of the one before, or the host's start, until host and device are done."""

    def interior_mean_ns(self) -> float:
        """Mean over the steps other than the first and the last; over all where there are no others."""
        inner = self.durations_ns[1:-1] or self.durations_ns
        return sum(inner) / max(len(inner), 1)


def simulate(graph: StepGraph) -> Replayed:  # one branch an action and no max(): calls would double its time
    """Run all tasks, each as soon as what it depends on is done.

    Host tasks are taken in recorded order, which every edge follows: a launch precedes its device tasks, a stream keeps
    the order of launches, and a wait is for something launched before it. So one pass is enough.
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
    return Replayed(_windows(host_starts, host_ends, device_ends))


class _Device:
    """Streams that work off what is launched, each in order."""

    def __init__(self, graph: StepGraph) -> None:
        tasks, constants = graph.device, graph.constants
        self.ends = [0] * len(tasks)
        """When each task is done; 0 before it was launched."""

        self.stream_ends = [-constants.queued_gap_ns] * graph.stream_count
        self.accepted = 0
        """When the last launch was in its queue: later than it was tried where that was full."""

        self._durations, self._streams = tasks.duration_ns.tolist(), tasks.stream.tolist()
        self._afters = tasks.after.tolist()
        self._latency, self._gap = constants.launch_latency_ns, constants.queued_gap_ns
        self._depth = constants.queue_depth or _UNLIMITED
        self._launch_ends: list[list[int]] = [[] for _ in range(graph.stream_count)]

    def launch(self, now: int, first: int, count: int) -> int:
        """When the tasks of a launch that is tried now are done."""
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
    """When batches are ready that workers make ahead of the loop.

    Workers start one after the other, so that batches come evenly; none is begun before its place is free.
    """

    def __init__(self, workers: Workers | None) -> None:
        self._count = workers.count if workers else 0
        self._ahead = workers.ahead if workers else 0
        self._load_ns = workers.load_ns if workers else ()
        self._ready = 0
        self._taken: list[int] = []

    def take(self, now: int) -> int:
        """When the next batch is in hand that is asked for now."""
        number = len(self._taken)
        load = self._load_ns[number]
        self._ready += load // self._count
        if number >= self._ahead:
            self._ready = max(self._ready, self._taken[number - self._ahead] + load)
        self._taken.append(max(now, self._ready))
        return self._taken[-1]


def _windows(host_starts: list[int], host_ends: list[int], device_ends: list[int]) -> tuple[int, ...]:
    """As recorded windows are cut: a step begins where the one before ended."""
    durations, end = [], 0
    for host_start, host_end, device_end in zip(host_starts, host_ends, device_ends, strict=True):
        start = max(end, host_start)
        end = max(start, host_end, device_end)
        durations.append(end - start)
    return tuple(durations)
