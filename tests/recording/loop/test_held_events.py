"""Events that the tracker gets late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.recording.looping import EXTRA, VALID, Loop
from traceadvisor.recording.loop.held_events import LONGEST_NS

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
