"""Cost of a run, and a finding's saving in money. Amounts are in the currency of the price."""

from __future__ import annotations

from traceadvisor.frozen import frozen


@frozen
class Price:
    """Price of one GPU."""

    per_gpu_hour: float
    currency: str


@frozen
class RunCost:
    """Cost of the run at the price that was set."""

    price: Price
    gpu_count: int
    """GPUs of all ranks."""

    per_million_samples: float | None
    """None where the sample rate is unknown."""

    @property
    def per_hour(self) -> float:
        """Cost of all GPUs per hour."""
        return self.price.per_gpu_hour * self.gpu_count


@frozen
class Amounts:
    """A saving in money."""

    low: float
    expected: float
    high: float


@frozen
class Worth:
    """A finding's saving in money, at the price that was set."""

    currency: str
    per_hour: Amounts
    """Saved per hour of training, on all GPUs of the run."""

    per_million_samples: Amounts | None
    """None where the sample rate is unknown."""
