from __future__ import annotations

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


def test_a_single_epoch_has_no_later_starts() -> None:
    assert epoch_starts(_epochs(900)) is None


def test_without_recorded_starts_the_result_is_none() -> None:
    steps = [TimedStep(number, 0, 1000, 10, 1, StepState.PLAIN) for number in range(9)]
    assert epoch_starts(steps) is None
