"""Typical steps: the kept ones without start-up, teardown and outliers."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.analysis.analysing import facts_of
from tests.build import TraceBuilder
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category


def _steps(*lengths_us: int, updates: Sequence[int] = (), waits_us: Sequence[int] = ()) -> TraceBuilder:
    """Steps in which one operator and its kernel take all the time, after the wait for a batch from workers."""
    builder, start = TraceBuilder(), 0
    for number, length in enumerate(lengths_us):
        end, ready = start + length, start + (waits_us[number] if waits_us else 0)
        builder.step(number, start, end).op("aten::mm", ready, end)
        builder.launch(ready, ready + 1, kernel=(ready + 1, end))
        if waits_us:
            builder.loader(start, ready)
        if number in updates:
            builder.optimizer(end - 1, end)
        start = end
    return builder


def _typical(builder: TraceBuilder, folder: Path) -> list[int]:
    return [step.index for step in facts_of(builder, folder).steps.typical]


@pytest.mark.parametrize(("length", "kept"), [(106, True), (107, False), (94, True), (93, False)])
def test_steps_within_six_percent_of_the_median_are_nearly_equal(length: int, tmp_path: Path, *, kept: bool) -> None:
    assert (2 in _typical(_steps(100, 100, length, 100, 100), tmp_path)) is kept


@pytest.mark.parametrize(("length", "kept"), [(144, True), (145, False)])
def test_a_step_further_than_three_robust_deviations_from_the_median_is_an_outlier(
    length: int, tmp_path: Path, *, kept: bool
) -> None:
    # Median 100, median absolute deviation 10: three deviations are 44.5.
    assert (3 in _typical(_steps(90, 100, 110, length, 85), tmp_path)) is kept


def test_each_reason_compares_with_the_median_step(tmp_path: Path) -> None:
    steps = facts_of(_steps(250, 100, 100, 130, 100, 100, 80), tmp_path).steps.steps
    assert [step.atypical for step in steps if step.atypical] == [
        "it is the first step of the recording and takes 2.5 times as long as the median step",
        "it takes 30% more time than the median step",
        "it is the last step of the recording and takes 20% less time than the median step",
    ]


def test_steps_of_very_different_lengths_are_all_typical(tmp_path: Path) -> None:
    assert _typical(_steps(100, 200, 300, 400), tmp_path) == [0, 1, 2, 3]


def test_gradient_accumulation_is_no_outlier(tmp_path: Path) -> None:
    builder = _steps(100, 100, 100, 150, 100, 100, 100, 150, updates=(3, 7))
    assert _typical(builder, tmp_path) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_an_update_in_one_of_four_steps_is_no_outlier(tmp_path: Path) -> None:
    assert _typical(_steps(100, 100, 100, 150, updates=(3,)), tmp_path) == [0, 1, 2, 3]


def test_a_single_step_without_an_update_is_compared_with_the_others(tmp_path: Path) -> None:
    assert _typical(_steps(100, 100, 50, 100, updates=(0, 1, 3)), tmp_path) == [0, 1, 3]


def test_batches_that_come_in_bursts_make_no_step_unusual(tmp_path: Path) -> None:
    waits = [0, 0, 300, 0, 0, 300]
    builder = _steps(*(100 + wait for wait in waits), waits_us=waits)
    facts = facts_of(builder, tmp_path)
    assert len(facts.steps.typical) == 6
    assert facts.per_step_ns(facts.claim(Category.DATA_WAIT)) == 100_000


def test_a_long_wait_in_the_first_step_starts_the_loader(tmp_path: Path) -> None:
    waits = [300, 0, 0, 0, 0, 0]
    assert _typical(_steps(*(100 + wait for wait in waits), waits_us=waits), tmp_path) == [1, 2, 3, 4, 5]


def test_of_two_steps_the_first_is_left_out_if_start_up_makes_it_longer(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 3_100).step(1, 3_100, 3_200)
    builder.op("aten::mm", 0, 3_100).allocate(10, 2_900).launch(2_950, 2_955, kernel=(2_960, 3_100))
    builder.op("aten::mm", 3_100, 3_200).launch(3_100, 3_105, kernel=(3_106, 3_200))
    facts = facts_of(builder, tmp_path)
    assert [step.index for step in facts.steps.typical] == [1]
    assert facts.steps.steps[0].atypical == (
        "it is the first step of the recording, and start-up makes it longer than the other"
    )


def test_of_two_steps_of_unexplained_length_both_are_typical(tmp_path: Path) -> None:
    assert _typical(_steps(100, 200), tmp_path) == [0, 1]


def test_figures_of_all_steps_include_unusual_ones(tmp_path: Path) -> None:
    facts = facts_of(_steps(100, 100, 200, 100), tmp_path)
    assert _figures(facts) == (3, 99_000)
    assert _figures(facts.of_all_steps) == (4, 124_000)
    assert facts.of_all_steps.trace is facts.trace


def _figures(facts: Facts) -> tuple[int, float]:
    return facts.step_count, facts.per_step_ns(facts.claim(Category.KERNEL))


def test_the_step_time_of_savings_is_the_mean_typical_step(tmp_path: Path) -> None:
    facts = facts_of(_steps(185, 100, 102, 101, 185), tmp_path)
    assert facts.step_ns == 101_000
    assert facts.mean is not None
    assert facts.mean.duration_ns == pytest.approx(134_600)
