"""Money: what a run costs, and what a finding is worth. Amounts are in the currency of the price."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Price:
    """What one GPU costs."""

    per_gpu_hour: float
    currency: str


@dataclass(frozen=True, slots=True)
class RunCost:
    """What a run costs while it trains."""

    price: Price
    gpu_count: int
    """Of all ranks together."""

    per_million_samples: float | None
    """None where the rate of samples is not known."""

    @property
    def per_hour(self) -> float:
        """Of all GPUs together."""
        return self.price.per_gpu_hour * self.gpu_count


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a saving comes to."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True)
class Worth:
    """What a finding saves while training goes on as it does."""

    currency: str
    per_hour: Amounts
    per_million_samples: Amounts | None
