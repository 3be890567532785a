import gc
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.recording.loop.test_loop_capture import Training, captured
from tests.recording.running import settings
from tests.waiting import wait_until
from traceadvisor.recording.gc_timer import LONG_PAUSE_NS, PROFILER, GcTimer


def _collects() -> bool:
    """Whether a collection can be asked for: not while one of another thread runs a finalizer that waits."""
    phases: list[str] = []

    def note(phase: str, _: object) -> None:
        phases.append(phase)

    gc.callbacks.append(note)
    gc.collect(0)
    gc.callbacks.remove(note)
    return bool(phases)


@pytest.fixture
def collector() -> None:
    """The collector is free."""
    wait_until(_collects)


@pytest.fixture
def no_collections(collector: None) -> Iterator[None]:  # it is free first
    """No collection but those that a test asks for."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
def test_collections_are_added_up_between_start_and_stop() -> None:
    timer = GcTimer(count(0, 10).__next__)
    gc.collect()
    timer.start()
    gc.collect()
    gc.collect(0)
    timer.stop()
    gc.collect()
    # Clock reads: start, two for each collection, stop.
    assert (timer.share, timer.longest_ns) == (20 / 50, 10)


def test_without_a_start_no_pauses_are_known() -> None:
    assert (GcTimer().share, GcTimer().longest_ns) == (None, None)


def test_the_stop_removes_the_callback() -> None:
    before = list(gc.callbacks)
    timer = GcTimer()
    timer.start()
    timer.stop()
    timer.stop()
    assert gc.callbacks == before


class _Collecting(Training):
    def learn(self, batch: list) -> None:  # type: ignore[type-arg]  # as its base has it
        super().learn(batch)
        gc.collect()


@pytest.mark.nightly("traceadvisor/recording")
@pytest.mark.usefixtures("collector")
def test_a_capture_records_the_time_of_collections(tmp_path: Path) -> None:
    gc.unfreeze()  # so that there is something to look through: a command that ran in this process froze its imports
    before = list(gc.callbacks)
    with captured(tmp_path):
        _Collecting().epoch()
    found = settings(tmp_path / "bundle")
    assert found.gc_share is not None and 0.3 < found.gc_share < 1  # noqa: PT018  # one thought
    assert found.gc_longest_ns is not None and found.gc_longest_ns > 1_000_000  # noqa: PT018
    assert gc.callbacks == before


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize(("module", "total"), [(PROFILER, 0), ("train", LONG_PAUSE_NS)])
def test_a_long_collection_while_a_recording_is_written_is_not_of_the_script(module: str, total: int) -> None:
    timer = GcTimer(count(0, LONG_PAUSE_NS).__next__)
    timer.start()
    exec("gc.collect()", {"gc": gc, "__name__": module})  # noqa: S102  # a module of this name
    timer.stop()
    assert timer.longest_ns == total


def test_long_collections_are_counted_with_their_steps() -> None:
    times = iter((0, 0, 20_000_000, 30_000_000, 31_000_000, 40_000_000, 60_000_000, 100_000_000))
    steps = iter((4, 9))
    timer = GcTimer(clock=lambda: next(times), step=lambda: next(steps))
    timer.start()
    gc.callbacks.remove(timer._collecting)
    for phase in ("start", "stop") * 3:
        timer._collecting(phase, {})
    timer.stop()
    assert (timer.long_count, timer.long_steps) == (2, (4, 9))
    assert (timer.share, timer.long_share) == (0.41, 0.4)
