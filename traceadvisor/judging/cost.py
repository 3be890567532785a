"""Computes the cost of a run and the value of a saving from the price of a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from traceadvisor.model.cost import Amounts, Price, RunCost, Worth
from traceadvisor.model.findings import Estimate
from traceadvisor.model.report import RecordedFinding, Recording

Row = TypeVar("Row", bound=RecordedFinding)

SECONDS_PER_HOUR = 3600
MILLION = 1_000_000


def with_cost(recording: Recording, price: Price | None) -> Recording:
    """The recording with the cost of its run, if a price is set."""
    return replace(recording, cost=_cost(recording, price)) if price else recording


def with_worth(row: Row, recording: Recording, price: Price | None) -> Row:
    """The finding with its saving in money, if a price is set and there is a saving."""
    saving, cost = row.finding.saving, _cost(recording, price) if price else None
    if cost is None or not saving.expected_ns or not row.step_ns:
        return row
    return replace(row, worth=worth(cost, saving, row.step_ns))


def _cost(recording: Recording, price: Price) -> RunCost | None:
    """The cost of the run; None without a GPU, because the price is per GPU."""
    if recording.gpu_count is None:
        return None
    return run_cost(price, recording.gpu_count, recording.rank_count, recording.samples_per_s)


def run_cost(price: Price, gpu_count: int, rank_count: int, rank_samples_per_s: float | None) -> RunCost:
    """The cost of a run, assuming that all ranks train at the speed of this one."""
    per_million = None
    if rank_samples_per_s:
        hours = MILLION / (rank_samples_per_s * rank_count) / SECONDS_PER_HOUR
        per_million = price.per_gpu_hour * gpu_count * hours
    return RunCost(price, gpu_count, per_million)


def worth(cost: RunCost, saving: Estimate, step_ns: float) -> Worth:
    """A saving in money: its share of the step, applied to the cost."""
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
