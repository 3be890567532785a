"""The device: streams that run what they are given in order, at most so many operations in flight each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.replay.clock import Clock, Process, Signal
from tests.replay.program import Machine


@dataclass(eq=False)
class Operation:
    """A kernel or a copy."""

    name: str
    stream: int
    duration_ns: int
    correlation: int
    after: tuple[Operation, ...] = field(repr=False)
    """Operations that must have ended before it starts."""

    start_ns: int = -1
    end_ns: int = -1
    ended: Signal = field(default_factory=Signal)
    followed: Signal = field(default_factory=Signal)
    """From here on an operation that waited for it on the device may start."""


class Device:
    """What it has been given, and which of it is in flight."""

    def __init__(self, clock: Clock, machine: Machine) -> None:
        self.operations: list[Operation] = []
        self._clock = clock
        self._machine = machine
        self._frontier: defaultdict[int, tuple[Operation, ...]] = defaultdict(tuple)
        self._in_flight: defaultdict[int, int] = defaultdict(int)
        self._room: defaultdict[int, Signal] = defaultdict(Signal)

    def frontier(self, stream: int) -> tuple[Operation, ...]:
        """What the next operation of a stream has to wait for."""
        return self._frontier[stream]

    def everything(self) -> tuple[Operation, ...]:
        """What the device has to end to be idle."""
        return tuple(operation for frontier in self._frontier.values() for operation in frontier)

    def hold(self, stream: int, until: tuple[Operation, ...]) -> None:
        """Let a stream wait for operations of others before what it is given from now on."""
        self._frontier[stream] += until

    def room(self, stream: int) -> Process:
        """Wait until the stream can be given another operation."""
        while self._in_flight[stream] >= self._machine.queue_depth:
            if self._room[stream].has_happened:
                self._room[stream] = Signal()
            yield self._room[stream]

    def submit(self, name: str, stream: int, duration_ns: int, latency_ns: int, correlation: int) -> Operation:
        """Give a stream an operation."""
        operation = Operation(name, stream, duration_ns, correlation, self._frontier[stream])
        self.operations.append(operation)
        self._frontier[stream] = (operation,)
        self._in_flight[stream] += 1
        self._clock.start(self._run(operation, latency_ns))
        return operation

    def _run(self, operation: Operation, latency_ns: int) -> Process:
        yield latency_ns
        for earlier in operation.after:
            yield earlier.followed
        operation.start_ns = self._clock.now_ns
        yield operation.duration_ns
        operation.end_ns = self._clock.now_ns
        self._in_flight[operation.stream] -= 1
        operation.ended.happen()
        self._room[operation.stream].happen()
        yield self._machine.gap_ns
        operation.followed.happen()
