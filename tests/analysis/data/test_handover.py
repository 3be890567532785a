"""The time to receive a batch that is ready, from timed steps and timed batches."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from traceadvisor.analysis.data.handover import begin_with_fetch, handover_ns
from traceadvisor.model.run import StepState, TimedBatch, TimedStep
from traceadvisor.model.steps import Step

MS = 1_000_000
WALL = 10**18


def _steps(fetch_ms: float = 1, count: int = 20, *, step_ms: float = 10) -> list[TimedStep]:
    """Steps that begin with their fetch."""
    step_ns, fetch_ns = round(step_ms * MS), round(fetch_ms * MS)
    return [
        TimedStep(number, WALL + number * step_ns, step_ns, fetch_ns, 1, StepState.PLAIN, 0) for number in range(count)
    ]


def _batches(ends_ms: Iterable[float]) -> list[TimedBatch]:
    """Batches of 5 ms by two workers."""
    ends_ns = [WALL + round(end * MS) for end in ends_ms]
    return [TimedBatch(number % 2, end - 5 * MS, 5 * MS, 0, 0, 0, 0, 0) for number, end in enumerate(ends_ns)]


def test_a_fetch_in_which_no_batch_ended_only_received_one() -> None:
    assert handover_ns(_steps(1), _batches(10 * number - 4 for number in range(20)), 2) == MS


def test_a_batch_of_another_worker_may_end_meanwhile() -> None:
    # Half of the batches end in the middle of a fetch.
    ends = [10 * number + (0.5 if number % 2 else -4) for number in range(20)]
    assert handover_ns(_steps(1), _batches(ends), 2) == MS


def test_a_loop_that_always_waits_does_not_show_it() -> None:
    # Each batch ends 0.9 ms after it was requested, of 1 ms in which the loop fetches it.
    assert handover_ns(_steps(1), _batches(10 * number + 0.9 for number in range(20)), 2) is None


def test_batches_that_were_not_timed_are_no_sign_that_others_were_ready() -> None:
    assert handover_ns(_steps(1, 100), _batches(10 * number - 4 for number in range(50)), 2) is None


@pytest.mark.parametrize("change", [{"fetches": 2}, {"state": StepState.RECORDED}, {"loader_start_ns": MS}])
def test_only_undisturbed_steps_with_one_batch_count(change: dict[str, Any]) -> None:
    steps = [replace(step, **change) for step in _steps()]
    assert handover_ns(steps, _batches(10 * number - 4 for number in range(20)), 2) is None


def test_batches_of_the_training_process_are_not_received() -> None:
    batches = [replace(batch, worker=None) for batch in _batches(10 * number - 4 for number in range(20))]
    assert handover_ns(_steps(), batches, 2) is None


def test_a_wall_clock_that_is_set_does_not_move_the_steps() -> None:
    # The clock is set by a second in the middle. Batches have the wall clock of the start.
    steps = [replace(step, clock_ns=step.start_ns - WALL) for step in _steps(1)]
    steps = [replace(step, start_ns=step.start_ns + (1000 * MS if step.index > 9 else 0)) for step in steps]
    assert handover_ns(steps, _batches(10 * number + 0.9 for number in range(20)), 2) is None


@pytest.mark.parametrize(("late_ms", "is_first"), [(0, True), (0.9, True), (5, False)])
def test_steps_begin_with_a_fetch_if_little_of_them_is_before_it(late_ms: float, *, is_first: bool) -> None:
    steps = [Step(number, *2 * (10 * MS * number, 10 * MS * (number + 1))) for number in range(4)]
    fetched = np.array([step.start_ns + round(late_ms * MS) for step in steps])
    assert begin_with_fetch(steps, fetched) is is_first


def test_steps_without_a_fetch_do_not_begin_with_one() -> None:
    assert not begin_with_fetch([Step(0, 0, 10, 0, 10)], np.array([], dtype=np.int64))
