from dataclasses import replace

import pytest

from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.rules.data.epoch_starts import epoch_starts


def _epochs(
    *begun_us: int, steps: int = 4, first_batch_us: int = 50, state: StepState = StepState.PLAIN
) -> list[TimedStep]:
    """Build epochs from the times to start them. A batch takes 10 us, the first of an epoch takes longer."""
    return [
        TimedStep(
            epoch * steps + number,
            0,
            200_000,
            (10 if number else first_batch_us) * 1000,
            1,
            state,
            0 if number else begun * 1000,
        )
        for epoch, begun in enumerate(begun_us)
        for number in range(steps)
    ]


def test_starts_after_the_first_are_divided_by_the_steps_between_them() -> None:
    starts = epoch_starts(_epochs(900, 20, 40))
    assert starts is not None
    assert (starts.count, starts.start_ns, starts.first_batch_ns, starts.steps_per_epoch) == (2, 30_000, 40_000, 4)
    assert starts.per_step_ns == pytest.approx(70_000 / 4)


def test_steps_without_training_do_not_count() -> None:
    other = _epochs(5, state=StepState.OTHER)
    starts = epoch_starts([*_epochs(900), *other, *_epochs(20)])
    assert starts is not None
    assert (starts.count, starts.steps_per_epoch) == (1, 4)


def test_epochs_of_one_step_have_no_usual_batch() -> None:
    starts = epoch_starts(_epochs(900, 20, 40, steps=1))
    assert starts is not None
    assert (starts.first_batch_ns, starts.steps_per_epoch) == (50_000, 1)


def _with_ends(steps: list[TimedStep], loader_us: int) -> list[TimedStep]:
    """Put the call in which the loader stops its workers before each later epoch."""
    ended = []
    for step in steps:
        if step.loader_start_ns and step.index:
            ended.append(TimedStep(step.index, 0, 500_000, loader_us * 1000, 0, StepState.OTHER, 0))
        ended.append(step)
    return ended


def test_the_end_of_an_epoch_stops_its_workers() -> None:
    starts = epoch_starts(_with_ends(_epochs(900, 20, 40), 30))
    assert starts is not None
    assert starts.end_ns == 30_000
    assert starts.per_step_ns == pytest.approx(100_000 / 4)
    assert starts.training_step_ns == pytest.approx(200_000 + 60_000 / 4)


@pytest.mark.parametrize(("slow", "settling_ns"), [(3, 2 * 20_000 - 10_000), (20, 40_000)])
def test_the_steps_after_a_start_may_be_longer_for_it_but_by_no_more_than_the_start(
    slow: int, settling_ns: int
) -> None:
    # Of 30 steps of 200 us, the first ones take 20 us more. The start, inside the first of them, takes 30 us, and its
    # batch 10 more than usual.
    steps = [
        replace(step, duration_ns=220_000) if step.index % 30 < slow else step
        for step in _epochs(900, 30, 30, steps=30, first_batch_us=20)
    ]
    starts = epoch_starts(steps)
    assert starts is not None
    assert starts.settling_ns == pytest.approx(settling_ns)
    assert starts.most_per_step_ns == pytest.approx((40_000 + starts.settling_ns) / 30)


def test_steps_of_short_epochs_are_held_against_the_fastest_of_them() -> None:
    steps = [
        replace(step, duration_ns=100_000 if step.index % 4 == 3 else 200_000)
        for step in _epochs(900, 900, 900, first_batch_us=10)
    ]
    starts = epoch_starts(steps)
    assert starts is not None
    assert starts.settling_ns == pytest.approx(3 * 100_000)


def test_a_single_epoch_has_no_later_starts() -> None:
    assert epoch_starts(_epochs(900)) is None


def test_without_recorded_starts_the_result_is_none() -> None:
    steps = [TimedStep(number, 0, 1000, 10, 1, StepState.PLAIN) for number in range(9)]
    assert epoch_starts(steps) is None
