"""Events that the tracker gets late."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.recording.looping import EXTRA, VALID, Loop
from traceadvisor.recording.loop.held_events import LONGEST_NS
from traceadvisor.recording.loop.tracker import LoopTracker

LOOPS: dict[str, Callable[[Loop], Loop]] = {
    "one loader": lambda loop: loop.steps(60),
    "epochs with validation": lambda loop: (
        loop.steps(20).exhaust().fetch(VALID).fetch(VALID).exhaust(VALID).steps(20).exhaust().steps(20)
    ),
    "two optimizers": lambda loop: [loop.fetch().optimize(1).optimize(2) for _ in range(50)][-1],
    "accumulation": lambda loop: [loop.fetch().fetch().work(7).optimize() for _ in range(50)][-1],
    "two loaders": lambda loop: [loop.fetch().fetch(EXTRA).optimize() for _ in range(50)][-1],
    "no loader": lambda loop: [loop.work(9).optimize() for _ in range(50)][-1],
    "a loader that ends": lambda loop: [loop.steps(10).exhaust().work(3).optimize().work(3).optimize()][0],
}


PARTS: tuple[Callable[[Loop], object], ...] = (
    lambda loop: loop.fetch(took_ns=7).work(3).optimize(),
    lambda loop: loop.fetch().work(3).optimize(),
    lambda loop: loop.work(5).optimize(),
    lambda loop: loop.fetch().optimize(1).work(2).optimize(2),
    lambda loop: loop.fetch().fetch(EXTRA).optimize(),
    lambda loop: loop.fetch().fetch().optimize(),
    lambda loop: loop.fetch(VALID, grad=False),
    lambda loop: loop.fetch(VALID).optimize(),
    lambda loop: loop.exhaust(),
    lambda loop: loop.fetch(restarted=True).optimize(),
    lambda loop: loop.events.now(lambda: loop.tracker.saved(4)),
    lambda loop: loop.events.loader_left("train"),
)
"""Parts of a loop; one that comes several times in a row makes steps that are alike."""


def _known(loop: Loop) -> list[object]:
    """What the tracker and the window know."""
    tracker, window = vars(loop.tracker).copy(), vars(loop.window).copy()
    pattern = tracker.pop("_pattern")
    others = {"_window", "_log", "_trained", "_clock", "_wall_clock", "compiled_ns", "_recorder", "_requests", "_ranks"}
    kept = [value for name, value in (tracker | window).items() if name not in others]
    return [*kept, pattern and vars(pattern)]


@example([(PARTS[2], 60)], 64)
@given(st.lists(st.tuples(st.sampled_from(PARTS), st.integers(1, 40)), min_size=1, max_size=8), st.integers(2, 70))
def test_late_events_teach_what_direct_ones_do(parts: list[tuple[Callable[[Loop], object], int]], most: int) -> None:
    late, direct = (Loop(skip_first=10**6, most_held=held) for held in (most, 0))
    for loop in (late, direct):
        for part, count in parts:
            for _ in range(count):
                part(loop)
        loop.events.now(lambda: None)
    assert _known(late) == _known(direct)
    assert late.finish() == direct.finish()
    assert _known(late) == _known(direct)


@pytest.mark.parametrize("part", PARTS[:6])
def test_steps_like_the_one_before_are_passed_on_together(
    part: Callable[[Loop], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    stepped = LoopTracker.optimizer_stepped

    def counted(tracker: LoopTracker, optimizer: int, *, at_ns: int | None = None) -> None:
        passed.append(optimizer)
        stepped(tracker, optimizer, at_ns=at_ns)

    monkeypatch.setattr(LoopTracker, "optimizer_stepped", counted)
    loop = Loop(skip_first=10**6, most_held=64)
    for _ in range(640):
        part(loop)
    assert len(passed) < 100
    assert len(loop.finish()) > 630


@pytest.mark.parametrize("wait", [0, 3, 20])
@pytest.mark.parametrize("name", LOOPS)
def test_late_events_make_the_same_steps_and_recordings(name: str, wait: int) -> None:
    late, direct = (LOOPS[name](Loop(skip_first=2, wait=wait, repeat=2, most_held=most)) for most in (7, 0))
    assert late.finish() == direct.finish()
    assert late.recorder.calls == direct.recorder.calls
    assert late.recorder.marks == direct.recorder.marks


def test_events_wait_while_no_recording_is_due() -> None:
    loop = Loop(skip_first=1000, most_held=32).steps(60)
    assert 30 < len(loop.log) < 58
    assert len(loop.finish()) == 60


def test_events_do_not_wait_for_long() -> None:
    loop = Loop(skip_first=1000, most_held=32).steps(3).work(LONGEST_NS).steps(1)
    assert len(loop.log) == 3


def test_a_device_that_comes_into_use_is_recorded_after_late_events() -> None:
    loop = Loop(wait=0, most_held=32).steps(30)
    assert loop.recorder.calls.count("prepare") == 1
    loop.recorder.is_outdated = True
    loop.steps(100)
    assert loop.recorder.calls.count("prepare") == 2
