import pytest

from traceadvisor.judging.engine import run_cost, worth
from traceadvisor.model.cost import Price
from traceadvisor.model.findings import Estimate
from traceadvisor.model.saving import of_the_fix

PRICE = Price(3.6, "EUR")
"""A thousandth of a euro a second."""


def test_a_million_samples_cost_the_seconds_they_take() -> None:
    # 1,000 samples a second: 1,000 seconds.
    cost = run_cost(PRICE, gpu_count=1, rank_count=1, rank_samples_per_s=1000)
    assert cost.per_hour == 3.6
    assert cost.per_million_samples == pytest.approx(1.0)


def test_more_ranks_cost_more_per_hour_but_not_per_sample() -> None:
    cost = run_cost(PRICE, gpu_count=8, rank_count=8, rank_samples_per_s=1000)
    assert cost.per_hour == pytest.approx(28.8)
    assert cost.per_million_samples == pytest.approx(1.0)


def test_two_gpus_of_one_process_share_its_samples() -> None:
    cost = run_cost(PRICE, gpu_count=2, rank_count=1, rank_samples_per_s=1000)
    assert cost.per_million_samples == pytest.approx(2.0)


def test_without_a_rate_only_the_hour_has_a_cost() -> None:
    assert run_cost(PRICE, gpu_count=1, rank_count=1, rank_samples_per_s=None).per_million_samples is None


def test_a_saving_is_worth_its_share_of_the_step() -> None:
    cost = run_cost(PRICE, gpu_count=1, rank_count=1, rank_samples_per_s=1000)
    saved = worth(cost, Estimate.bound(50, of_the_fix("nobody asked")), step_ns=100)
    assert (saved.per_hour.low, saved.per_hour.expected, saved.per_hour.high) == pytest.approx((0, 0.9, 1.8))
    assert saved.per_million_samples is not None
    assert saved.per_million_samples.high == pytest.approx(0.5)


def test_no_saving_is_worth_more_than_the_cost() -> None:
    cost = run_cost(PRICE, gpu_count=1, rank_count=1, rank_samples_per_s=None)
    assert worth(cost, Estimate.bound(120, of_the_fix("nobody asked")), step_ns=100).per_hour.high == 3.6
