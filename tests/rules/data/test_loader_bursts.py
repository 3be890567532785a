from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.rules.data.loader_bursts import loader_turns


def _steps(*loader_us: int, **changes: object) -> list[TimedStep]:
    """Build steps of 100 us plus their time in the data loader; the first never counts."""
    waits = (0, *loader_us)
    return [
        TimedStep(number, 0, (100 + wait) * 1000, wait * 1000, 1, StepState.PLAIN, 0)
        for number, wait in enumerate(waits)
    ]


def test_waits_are_means_per_turn_minus_the_median_turn() -> None:
    turns = loader_turns(_steps(10, 10, 90, 10, 10, 10), workers=2)
    assert turns is not None
    assert turns.wait_ns.tolist() == [0, 40_000, 0]  # 50 us per step instead of the usual 10
    assert turns.step_ns == 100_000


def test_workers_that_take_turns_are_no_burst() -> None:
    turns = loader_turns(_steps(*[80, 0, 0, 0] * 5), workers=4)
    assert turns is not None
    assert set(turns.wait_ns.tolist()) == {0}


def test_the_first_step_of_an_epoch_is_left_out_and_ends_a_turn() -> None:
    steps = _steps(10, 500, 10, 10)
    begun = steps[2]
    steps[2] = TimedStep(2, 0, begun.duration_ns, begun.loader_ns, 1, StepState.PLAIN, 7)
    turns = loader_turns(steps, workers=2)
    assert turns is not None
    assert turns.wait_ns.tolist() == [0]


def test_recorded_steps_are_left_out() -> None:
    steps = [TimedStep(step.index, 0, 1000, 500, 1, StepState.RECORDED, 0) for step in _steps(*[10] * 8)]
    assert loader_turns(steps, workers=2) is None
