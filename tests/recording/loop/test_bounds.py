import threading
import time
from pathlib import Path

import pytest
import torch

from tests.recording.loop.test_loop_capture import Training, captured
from tests.recording.looping import Loop, states
from tests.recording.running import manifest, traces
from tests.waiting import wait_until
from traceadvisor.recording.loop import bounds
from traceadvisor.recording.loop.bounds import (
    HEAP_PER_EVENT,
    LONGEST_S,
    MEMORY_SHARE,
    MOST_EVENTS,
    STOP_PER_EVENT,
    Bounds,
    Reached,
    heap_bytes,
    memory_left_bytes,
)

PLENTY = 10**12


class Recording:
    """A recording whose size the test sets."""

    def __init__(self) -> None:
        self.events = self.now = 0
        self.left = PLENTY
        self.bounds = Bounds(
            heap=lambda: self.events * HEAP_PER_EVENT, memory_left=lambda: self.left, clock=lambda: self.now
        )
        self.bounds.start(lambda: None)
        self.bounds.stop()

    def look(self, *, events: bool = True) -> Reached | None:
        self.bounds.look(events=events)
        return self.bounds.reached


def test_a_recording_is_bounded_by_events() -> None:
    recording = Recording()
    recording.events = MOST_EVENTS - 1
    assert recording.look() is None
    recording.events = MOST_EVENTS
    assert recording.look() == Reached("it holds about 500 thousand operators and Python calls", at_once=False)
    recording.events = 2 * MOST_EVENTS
    assert recording.look() == Reached("it holds about 1,000 thousand operators and Python calls", at_once=True)


def test_a_recording_is_bounded_by_the_memory_that_stopping_takes() -> None:
    recording = Recording()
    recording.events = 100_000
    recording.left = int(100_000 * STOP_PER_EVENT / MEMORY_SHARE)
    assert recording.look() == Reached("to stop it takes about 0.6 GB of memory", at_once=False)
    recording.left += 10
    recording.bounds.reached = None
    assert recording.look() is None


def test_a_recording_is_bounded_by_time() -> None:
    recording = Recording()
    recording.now = int(LONGEST_S) - 1
    assert recording.look() is None
    recording.now = int(LONGEST_S)
    assert recording.look() == Reached("it lasts 5 minutes", at_once=False)
    recording.now = int(2 * LONGEST_S)
    assert recording.look() == Reached("it lasts 10 minutes", at_once=True)


def test_tensors_on_the_heap_are_no_events() -> None:
    """In the middle of a step on the CPU."""
    recording = Recording()
    recording.events = 9 * MOST_EVENTS
    assert recording.look(events=False) is None


def test_events_take_the_heap_that_is_supposed() -> None:
    """Those of this torch: otherwise the bound lies elsewhere."""
    before = heap_bytes()
    if before is None:
        pytest.skip("this C library does not tell")
    profiler = torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True)
    profiler.start()
    one = torch.ones(4)
    before = heap_bytes()
    for _ in range(2000):
        torch.add(one, 1)
    after = heap_bytes()
    profiler.stop()
    assert before is not None
    assert after is not None
    count = sum(not event.name().startswith("[memory]") for event in profiler.profiler.kineto_results.events())  # type: ignore[union-attr]
    assert 0.5 < (after - before) / count / HEAP_PER_EVENT < 1.5


def test_memory_is_left() -> None:
    assert 10**6 < memory_left_bytes() < 10**14


def test_a_recording_at_its_bound_ends_with_the_step() -> None:
    loop = Loop().steps(5)
    loop.recorder.reached = Reached("it is large", at_once=False)
    loop.steps(2)
    loop.recorder.reached = None
    rows = loop.steps(20).exhaust().finish()
    assert states(rows).count("recorded") == 2
    assert loop.recorder.calls == ["prepare", "start", "save 0"]
    (note,) = loop.window.notes
    assert note.code == "window-bounded"
    assert note.message == "The recording ended after 2 of the 8 steps to record: it is large."


def test_a_recording_at_its_bound_holds_one_step_at_least() -> None:
    loop = Loop(workers=4, prefetch=4, stall_ns=10).steps(20)
    assert loop.recorder.calls == ["prepare", "start"]
    loop.recorder.reached, loop.recorder.used = Reached("it is large", at_once=False), 1.0
    rows = loop.steps(2).steps(20).exhaust().finish()
    assert states(rows).count("recorded") == 1
    assert loop.recorder.calls[:3] == ["prepare", "start", "save 0"]


@pytest.mark.parametrize(("steps", "calls"), [(6, ["save 0"]), (3, ["discard"])])
def test_a_recording_at_twice_its_bound_ends_at_once(steps: int, calls: list[str]) -> None:
    loop = Loop().steps(steps).fetch()
    loop.recorder.reached = Reached("it is large", at_once=True)
    loop.tracker.interrupted(loop.window.end_at_once)
    loop.recorder.reached = None
    rows = loop.optimize().steps(30).exhaust().finish()
    assert loop.recorder.calls == ["prepare", "start", *calls]
    assert rows[steps].state.value == "stalled"
    assert loop.notes == ["window-bounded"]


def test_a_loop_with_many_operators_is_recorded_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_EVENTS", 4_000)
    training = Training(batches=30)
    one = torch.ones(4)
    with captured(tmp_path) as capture:
        for batch in training.loader:
            training.learn(batch)
            for _ in range(400):
                torch.add(one, 1)
            training.optimizer.step()
    (note,) = manifest(tmp_path / "bundle").notes
    assert note.code == "window-bounded"
    assert "thousand operators" in note.message
    assert capture.captured
    assert 1 <= capture.captured.recorded_steps < 8
    assert len(traces(tmp_path / "bundle")) == 1


@pytest.mark.nightly("traceadvisor/recording")
def test_a_loop_that_makes_no_more_steps_is_not_recorded_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LONGEST_S", 0.5)
    training = Training()
    with captured(tmp_path):
        for number, batch in enumerate(training.loader):
            training.learn(batch)
            training.optimizer.step()
            if number == 7:
                wait_until(lambda: torch.ones(4).add(1) is not None and not is_recording(), 30)
                break
    (note,) = manifest(tmp_path / "bundle").notes
    assert note.code == "window-bounded"
    assert "minutes" in note.message


def is_recording() -> bool:
    return bool(torch._C._autograd._profiler_enabled())


def test_the_thread_ends_with_the_recording() -> None:
    recording = Bounds()
    recording.start(lambda: None)
    watching = [thread for thread in threading.enumerate() if thread.name == "traceadvisor-bounds"]
    recording.stop()
    end_s = time.monotonic() + 30
    while any(thread.is_alive() for thread in watching) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert watching
    assert not any(thread.is_alive() for thread in watching)
