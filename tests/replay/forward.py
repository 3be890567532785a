"""Runs a training program forward: from what everything takes to when everything happens.

    truth = simulate(program)
    truth.steps, truth.operations, truth.host_events
    write(truth)  # tests.replay.written: the recording that torch's profiler would make of it

Independent of the package, which goes the other way, and as simple as it can be: the training thread, the autograd
thread, the loader's workers and each operation of the device are processes that wait for one another (``clock.py``).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import count, pairwise
from statistics import fmean
from typing import assert_never

from tests.build import AUTOGRAD, MAIN
from tests.replay.clock import Clock, Process, Signal
from tests.replay.device import Device, Operation
from tests.replay.program import (
    Action,
    Actions,
    Backward,
    Call,
    Copy,
    Fetch,
    Item,
    Launch,
    Loader,
    Op,
    Program,
    Range,
    Record,
    StreamWait,
    Synchronize,
    Upload,
    Wait,
    Work,
)

_SHOWN = (Op, Range, Fetch, Call, Launch, Copy, Record, StreamWait, Synchronize)
"""What makes one event in the recording; the other actions make none, or stand for some of these."""


class Shown(Enum):
    """What the profiler makes of something on the host."""

    STEP = "step"
    OPERATOR = "operator"
    RANGE = "range"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Something the profiler sees on a host thread."""

    shown: Shown
    name: str
    thread: int
    start_ns: int
    end_ns: int
    correlation: int | None = None
    waits_for: tuple[int, ...] = ()
    """Correlation of the event's record call, and its stream, for calls that wait for an event."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step as it really was."""

    start_ns: int
    """When the training thread began it."""

    end_ns: int
    """When the training thread ended it."""

    done_ns: int
    """When all is done that was launched in it, not before the training thread ended it."""

    fetch_ns: int
    """The training thread was in the loader."""

    kernel_ns: int
    """The durations of its kernels together."""


@dataclass(frozen=True, slots=True)
class Truth:
    """When everything happened."""

    program: Program
    steps: tuple[StepTime, ...]
    operations: tuple[Operation, ...]
    host_events: tuple[HostEvent, ...]

    @property
    def recorded(self) -> Sequence[StepTime]:
        """The steps of the recording."""
        return self.steps[self.program.first_recorded :]

    @property
    def recorded_from_ns(self) -> int:
        """The first instant of the recording: what runs on the device when the first step begins is in it whole."""
        begin_ns = self.recorded[0].start_ns
        return min([begin_ns, *(one.start_ns for one in self.operations if one.end_ns > begin_ns)])

    def step_ns(self, first: int = 1, last: int = -1) -> float:
        """Mean duration of recorded steps, those in the middle unless told otherwise: from one's end to the next's."""
        done = [step.done_ns for step in self.recorded]
        lengths = [end - start for start, end in pairwise(done)]
        return fmean(lengths[first - 1 : last])


def simulate(program: Program) -> Truth:
    """Run a program."""
    return _Run(program).truth()


@dataclass(frozen=True, slots=True)
class _Recorded:
    """An event of the runtime's: what must have ended for it to have happened."""

    operations: tuple[Operation, ...]
    correlation: int
    stream: int


class _Run:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.clock = Clock()
        self.device = Device(self.clock, program.machine)
        self.batches = _Batches(self.clock, program.loader)
        self.host_events: list[HostEvent] = []
        self.marks: list[tuple[int, int, int, int]] = []
        """Of each step: start, end, and the first and the last but one of its operations."""

        self._correlation = count(1)
        self._events: dict[str, _Recorded] = {}

    def truth(self) -> Truth:
        self.clock.start(self._train())
        self.clock.run()
        return Truth(
            self.program,
            tuple(self._step_time(*mark) for mark in self.marks),
            tuple(self.device.operations),
            tuple(self.host_events),
        )

    def _step_time(self, start_ns: int, end_ns: int, first: int, beyond: int) -> StepTime:
        mine = self.device.operations[first:beyond]
        fetches = [
            event.end_ns - event.start_ns
            for event in self.host_events
            if event.name.startswith("enumerate(") and start_ns <= event.start_ns < end_ns
        ]
        kernels = [operation.duration_ns for operation in mine if not operation.name.startswith("Memcpy")]
        done_ns = max([end_ns, *(operation.end_ns for operation in mine)])
        return StepTime(start_ns, end_ns, done_ns, sum(fetches), sum(kernels))

    # -- host threads ---------------------------------------------------------------------------------------------

    def _train(self) -> Process:
        for number, body in enumerate(self.program.steps):
            start_ns, first = self.clock.now_ns, len(self.device.operations)
            with self._shown(Shown.STEP, f"ProfilerStep#{number}", MAIN):
                yield from self._do(body, MAIN)
            self.marks.append((start_ns, self.clock.now_ns, first, len(self.device.operations)))
        yield from self._one(Synchronize(Wait.DEVICE), MAIN)  # the profiler's own, when it stops

    def _do(self, actions: Actions, thread: int) -> Process:
        for action in actions:
            yield from self._one(action, thread)

    def _one(self, action: Action, thread: int) -> Process:
        if isinstance(action, _SHOWN) and len(self.marks) >= self.program.first_recorded:
            yield self.program.event_ns
        match action:
            case Work(ns):
                yield ns
            case Op(name, body):
                with self._shown(Shown.OPERATOR, name, thread):
                    yield from self._do(body, thread)
            case Range(name, body):
                with self._shown(Shown.RANGE, name, thread):
                    yield from self._do(body, thread)
            case Backward(body, hand_over_ns):
                yield hand_over_ns
                yield self.clock.start(self._do(body, AUTOGRAD))
                yield hand_over_ns
            case Upload() | Item():
                yield from self._one(_operators_of(action), thread)
            case Fetch():
                kind = "MultiProcessing" if self.program.loader.workers else "SingleProcess"
                with self._shown(Shown.RANGE, f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__", thread):
                    yield from self.batches.take()
            case _:
                yield from self._runtime(action, thread)

    def _runtime(self, action: Call | Launch | Copy | Record | StreamWait | Synchronize, thread: int) -> Process:
        key = next(self._correlation)
        match action:
            case Call(name, call_ns):
                with self._shown(Shown.CALL, name, thread, key):
                    yield call_ns
            case Launch():
                with self._shown(Shown.CALL, "cudaLaunchKernel", thread, key):
                    yield from self.device.room(action.stream)
                    yield action.call_ns
                    self.device.submit(action.name, action.stream, action.kernel_ns, action.latency_ns, key)
            case Copy():
                yield from self._copy(action, thread, key)
            case Record(event, stream, call_ns):
                with self._shown(Shown.CALL, "cudaEventRecord", thread, key):
                    yield call_ns
                    self._events[event] = _Recorded(self.device.frontier(stream), key, stream)
            case StreamWait(event, stream, call_ns):
                recorded = self._events[event]
                waits_for = (recorded.correlation, recorded.stream, stream)
                with self._shown(Shown.CALL, "cudaStreamWaitEvent", thread, key, waits_for):
                    yield call_ns
                    self.device.hold(stream, recorded.operations)
            case Synchronize():
                yield from self._synchronize(action, thread, key)
            case _:
                assert_never(action)

    def _copy(self, copy: Copy, thread: int, key: int) -> Process:
        memory = "Pinned" if copy.pinned else "Pageable"
        name = f"Memcpy HtoD ({memory} -> Device)" if copy.to_device else f"Memcpy DtoH (Device -> {memory})"
        with self._shown(Shown.CALL, "cudaMemcpyAsync", thread, key):
            yield from self.device.room(copy.stream)
            yield copy.call_ns
            operation = self.device.submit(name, copy.stream, copy.copy_ns, copy.latency_ns, key)
            if not copy.pinned:
                yield operation.ended
                yield copy.wake_ns

    def _synchronize(self, action: Synchronize, thread: int, key: int) -> Process:
        waits_for: tuple[int, ...] = ()
        match action.wait:
            case Wait.STREAM:
                awaited = self.device.frontier(action.stream)
                waits_for = (action.stream,)
            case Wait.DEVICE:
                awaited = self.device.everything()
            case Wait.EVENT:
                recorded = self._events[action.event]
                awaited, waits_for = recorded.operations, (recorded.correlation, recorded.stream, -1)
            case _:
                assert_never(action.wait)
        with self._shown(Shown.CALL, action.wait.value, thread, key, waits_for):
            for operation in awaited:
                yield operation.ended
            yield action.wake_ns

    @contextmanager
    def _shown(
        self, shown: Shown, name: str, thread: int, correlation: int | None = None, waits_for: tuple[int, ...] = ()
    ) -> Iterator[None]:
        start_ns = self.clock.now_ns
        yield
        self.host_events.append(HostEvent(shown, name, thread, start_ns, self.clock.now_ns, correlation, waits_for))


def _operators_of(action: Upload | Item) -> Op:
    """What torch makes of a line of the program."""
    to_device = isinstance(action, Upload)
    copy = Copy(
        action.copy_ns, to_device, action.pinned, action.stream, action.call_ns, action.latency_ns, action.wake_ns
    )
    wait = Synchronize(Wait.STREAM, action.stream, wake_ns=action.wake_ns)
    if isinstance(action, Item):
        return Op("aten::item", (Op("aten::_local_scalar_dense", (Work(action.own_ns), copy, wait)),))
    waits = () if action.non_blocking else (wait,)
    return Op("aten::to", (Op("aten::_to_copy", (Op("aten::copy_", (Work(action.own_ns), copy, *waits)),)),))


class _Batches:
    """The loader: batches come in order; worker ``w`` of ``n`` makes batches ``w``, ``w + n``, ``w + 2 n``, ..."""

    def __init__(self, clock: Clock, loader: Loader) -> None:
        self._loader = loader
        self._clock = clock
        self._taken = 0
        self._asked_for = [Signal() for _ in loader.batch_ns]
        self._ready = [Signal() for _ in loader.batch_ns]
        for batch in range(loader.workers * loader.prefetch):
            self._ask_for(batch)
        for worker in range(loader.workers):
            clock.start(self._work(worker))

    def take(self) -> Process:
        """The training thread takes the next batch."""
        batch = self._taken
        self._taken += 1
        if not self._loader.workers:
            yield self._loader.batch_ns[batch]
            return
        yield self._ready[batch]
        yield self._loader.take_ns
        self._ask_for(batch + self._loader.workers * self._loader.prefetch)

    def _ask_for(self, batch: int) -> None:
        if batch < len(self._asked_for):
            self._asked_for[batch].happen()

    def _work(self, worker: int) -> Process:
        for batch in range(worker, len(self._ready), self._loader.workers):
            yield self._asked_for[batch]
            yield self._loader.batch_ns[batch]
            self._ready[batch].happen()
