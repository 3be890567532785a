"""A fake training loop: calls the tracker as the hooks do, on a clock that the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from traceadvisor.bundle.layout import Schedule
from traceadvisor.bundle.steps import StepLog
from traceadvisor.model.run import TimedStep
from traceadvisor.recording.job_store import SamePhases
from traceadvisor.recording.loop.bounds import Reached
from traceadvisor.recording.loop.held_events import HeldEvents, LateClock
from traceadvisor.recording.loop.tracker import LoopTracker
from traceadvisor.recording.loop.window import Window
from traceadvisor.recording.requests import Requests

if TYPE_CHECKING:
    from traceadvisor.recording.loop.profiler import TorchRecorder

TRAIN, VALID, EXTRA = "train", "valid", "extra"


class FakeRecorder:
    """Collects its calls."""

    def __init__(self, stall_ns: int = 0) -> None:
        self.calls: list[str] = []
        self.marks: list[int] = []
        self._stall_ns = stall_ns
        self.is_blocked = self.is_outdated = False
        self.reached: Reached | None = None
        self.used = 0.0

    def prepare(self) -> int:
        self.calls.append("prepare")
        self.is_outdated = False
        return self._stall_ns

    def start(self) -> int:
        self.calls.append("start")
        return self._stall_ns

    def mark(self, step: int) -> None:
        self.marks.append(step)

    def save(self, cycle: int, *, whole: bool) -> bool:
        self.calls.append(f"save {cycle}" if whole else f"save {cycle} cut")
        return True

    def discard(self) -> None:
        self.calls.append("discard")


class Loop:
    """A loop on a fake clock: each fetch takes 10 ns, each optimizer step 1 ns."""

    def __init__(
        self,
        *,
        skip_first: int = 0,
        wait: int = 0,
        warmup: int = 1,
        active: int = 8,
        repeat: int = 1,
        workers: int = 0,
        prefetch: int = 2,
        stall_ns: int = 0,
        ranks: SamePhases | None = None,
        most_held: int = 0,
        requests: Requests | None = None,
    ) -> None:
        self.now = 0
        self.recorder = FakeRecorder(stall_ns)
        recorder = cast("TorchRecorder", self.recorder)
        self.window = Window(Schedule(skip_first, wait, warmup, active, repeat), recorder, ranks, requests)
        self.log = StepLog()
        self.trained_by: list[object] = []
        self._queue = (workers, prefetch)
        clock = LateClock(lambda: self.now, lambda: self.now)
        self.tracker = LoopTracker(
            self.window, self.log, trained=self._training_found, clock=clock.steady_ns, wall_clock=clock.wall_ns
        )
        self.events = HeldEvents(self.tracker, self.window, clock, most_steps=most_held)

    def _training_found(self, loader: object) -> None:
        self.trained_by.append(loader)
        self.window.settle_for(*self._queue)

    def fetch(
        self, loader: str = TRAIN, *, grad: bool = True, batch: bool = True, took_ns: int = 10, restarted: bool = False
    ) -> Loop:
        self.events.fetch_begins(loader, grad=grad, restarted=restarted)
        self.now += took_ns
        self.events.fetch_ended(loader, got_batch=batch)
        return self

    def exhaust(self, loader: str = TRAIN, *, grad: bool = True) -> Loop:
        return self.fetch(loader, grad=grad, batch=False)

    def optimize(self, optimizer: int = 1) -> Loop:
        self.now += 1
        self.events.optimizer_stepped(optimizer)
        return self

    def work(self, time: int) -> Loop:
        self.now += time
        return self

    def steps(self, count: int, loader: str = TRAIN) -> Loop:
        for _ in range(count):
            self.fetch(loader).optimize()
        return self

    def finish(self) -> list[TimedStep]:
        self.events.now(self.tracker.finish)
        self.window.finish()
        return list(self.log)

    @property
    def notes(self) -> list[str]:
        return [note.code for note in self.window.notes]


def states(rows: list[TimedStep]) -> list[str]:
    return [row.state.value for row in rows]
