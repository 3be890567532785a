"""What a run costs and what a finding is worth, from the price of a GPU."""

from __future__ import annotations

from traceadvisor.model.cost import Amounts, Price, RunCost, Worth
from traceadvisor.model.findings import Estimate

SECONDS_PER_HOUR = 3600
MILLION = 1_000_000


def run_cost(price: Price, gpu_count: int, rank_count: int, rank_samples_per_s: float | None) -> RunCost:
    """The cost of a run whose ranks each train on samples of their own, as many per second as one of them does."""
    per_million = None
    if rank_samples_per_s:
        hours = MILLION / (rank_samples_per_s * rank_count) / SECONDS_PER_HOUR
        per_million = price.per_gpu_hour * gpu_count * hours
    return RunCost(price, gpu_count, per_million)


def worth(cost: RunCost, saving: Estimate, step_ns: float) -> Worth:
    """A saving in money: the share of the step that goes is the share of the cost that goes."""
    return Worth(
        cost.price.currency,
        _amounts(cost.per_hour, saving, step_ns),
        None if cost.per_million_samples is None else _amounts(cost.per_million_samples, saving, step_ns),
    )


def _amounts(whole: float, saving: Estimate, step_ns: float) -> Amounts:
    low, expected, high = (
        whole * min(part / step_ns, 1.0) for part in (saving.low_ns, saving.expected_ns, saving.high_ns)
    )
    return Amounts(low, expected, high)
