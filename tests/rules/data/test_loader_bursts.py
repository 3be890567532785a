from __future__ import annotations

from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.rules.data.loader_bursts import loader_turns


def _steps(*loader_us: int, **changes: object) -> list[TimedStep]:
    """Steps that take 100 us beside their time in the loader; the first counts nowhere."""
    waits = (0, *loader_us)
    return [
        TimedStep(number, 0, (100 + wait) * 1000, wait * 1000, 1, StepState.PLAIN, 0)
        for number, wait in enumerate(waits)
    ]


def test_waits_are_means_over_a_turn_of_the_workers_beyond_the_median_turn() -> None:
    turns = loader_turns(_steps(10, 10, 90, 10, 10, 10), workers=2)
    assert turns is not None
    assert turns.wait_ns.tolist() == [0, 40_000, 0]  # 50 us a step, where 10 are usual
    assert turns.step_ns == 100_000


def test_workers_that_deliver_in_turn_make_no_burst() -> None:
    turns = loader_turns(_steps(*[80, 0, 0, 0] * 5), workers=4)
    assert turns is not None
    assert set(turns.wait_ns.tolist()) == {0}


def test_a_step_that_begins_an_epoch_is_left_out_and_ends_a_turn() -> None:
    steps = _steps(10, 500, 10, 10)
    begun = steps[2]
    steps[2] = TimedStep(2, 0, begun.duration_ns, begun.loader_ns, 1, StepState.PLAIN, 7)
    turns = loader_turns(steps, workers=2)
    assert turns is not None
    assert turns.wait_ns.tolist() == [0]


def test_steps_under_a_profiler_are_left_out() -> None:
    steps = [TimedStep(step.index, 0, 1000, 500, 1, StepState.RECORDED, 0) for step in _steps(*[10] * 8)]
    assert loader_turns(steps, workers=2) is None
