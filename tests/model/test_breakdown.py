import pytest

from traceadvisor.model.breakdown import (
    DEVICE_CATEGORIES,
    HOST_CATEGORIES,
    IDLE_CATEGORIES,
    Category,
    MeanBreakdown,
    StepBreakdown,
    Totals,
)


def test_a_breakdown_that_misses_a_nanosecond_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="do not sum to the step's 100 ns"):
        StepBreakdown(100, {Category.KERNEL: 60, Category.IDLE_HOST: 39})


def test_a_breakdown_with_a_negative_part_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="do not sum"):
        StepBreakdown(100, {Category.KERNEL: 110, Category.IDLE_HOST: -10})


def test_an_unmeasured_part_counts_as_zero() -> None:
    breakdown = StepBreakdown(100, {Category.KERNEL: 100, Category.DATA_WAIT: None})
    assert breakdown.share(Category.DATA_WAIT) is None
    assert breakdown.share(Category.KERNEL) == 1.0


def test_a_step_without_length_has_no_shares() -> None:
    assert StepBreakdown(0, {Category.KERNEL: 0}).share(Category.KERNEL) is None


def test_a_category_outside_the_breakdown_has_no_share() -> None:
    assert StepBreakdown(10, {Category.KERNEL: 10}).share(Category.FORWARD) is None


def test_a_mean_breakdown_sums_to_the_mean_step() -> None:
    mean = MeanBreakdown.over(
        [
            StepBreakdown(100, {Category.KERNEL: 60, Category.IDLE_HOST: 40}),
            StepBreakdown(200, {Category.KERNEL: 80, Category.IDLE_HOST: 120}),
        ]
    )
    assert mean.duration_ns == 150
    assert mean.parts_ns == {Category.KERNEL: 70, Category.IDLE_HOST: 80}
    assert mean.share(Category.KERNEL) == pytest.approx(70 / 150)


def test_the_mean_of_an_unmeasured_category_is_none() -> None:
    mean = MeanBreakdown.over([StepBreakdown(10, {Category.KERNEL: 10, Category.DATA_WAIT: None})])
    assert mean.parts_ns[Category.DATA_WAIT] is None
    assert mean.totals.data_wait_ns is None


def test_a_mean_over_no_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        MeanBreakdown.over([])


def test_the_seven_totals_sum_to_the_step() -> None:
    parts = {category: position + 1 for position, category in enumerate(DEVICE_CATEGORIES)}
    mean = MeanBreakdown.over([StepBreakdown(sum(parts.values()), parts)])
    totals = mean.totals
    assert totals == Totals(
        data_wait_ns=6,
        h2d_copy_ns=3,
        kernel_ns=1,
        communication_ns=2,
        other_copy_ns=4,
        idle_ns=7 + 8 + 9 + 10 + 11 + 12,
        unknown_ns=5,
    )
    assert mean.duration_ns == 78


def test_idle_is_all_idle_time_except_data_wait_and_unknown_time() -> None:
    assert Category.DATA_WAIT not in IDLE_CATEGORIES
    idle = {category for category in DEVICE_CATEGORIES if category.value.startswith("idle_")}
    assert idle - {Category.IDLE_UNKNOWN} == set(IDLE_CATEGORIES)


def test_without_a_device_the_device_totals_are_none() -> None:
    host = MeanBreakdown.over([StepBreakdown(6, dict.fromkeys(HOST_CATEGORIES, 1))])
    assert host.totals == Totals(
        data_wait_ns=1,
        h2d_copy_ns=None,
        kernel_ns=None,
        communication_ns=None,
        other_copy_ns=None,
        idle_ns=None,
        unknown_ns=None,
    )
