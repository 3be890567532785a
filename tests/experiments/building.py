"""Rows and loops for tests of experiments."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from traceadvisor.experiments.inside.conductor import Conductor
from traceadvisor.experiments.inside.loop import ExperimentOverError
from traceadvisor.experiments.journal import AnyRow, Facts, Finished, Journal, Round
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN, Plan
from traceadvisor.experiments.settings import Value


def facts(**changed: Any) -> Facts:
    """A script on the CPU with batches of 16 from the training process."""
    values: dict[str, Any] = {
        "device": "cpu",
        "device_name": None,
        "memory_bytes": 1 << 34,
        "loader": {"num_workers": 0, "batch_size": 16},
        "unavailable": {},
        "dataset_length": 10_000,
        "optimizer": "SGD",
        "torch": "2.13.0",
        "cores": 2,
        "batches_per_step": 1,
        "step_s": 0.01,
    }
    return Facts(**(values | changed))


def round_of(experiment: str, seconds: Mapping[str, float], peak_bytes: Mapping[str, int] | None = None) -> Round:
    """A round with times per sample; the base takes a second."""
    everything = {AS_IT_IS: 1.0, SAME_AGAIN: 1.0, **seconds}
    return Round(experiment, everything, everything, dict.fromkeys(everything, 1.0), dict(peak_bytes or {}), steps=10)


def finished(experiment: str, seconds: Mapping[str, float], rounds: int = 6) -> list[AnyRow]:
    """A finished experiment, whose rounds differ by a thousandth."""
    found: list[AnyRow] = [
        round_of(experiment, {arm: one * (1 + 0.001 * (number % 2)) for arm, one in seconds.items()})
        for number in range(rounds)
    ]
    return [*found, Finished(experiment)]


def plan_in(folder: Path, **changed: Any) -> Plan:
    """A plan with short blocks."""
    values: dict[str, Any] = {
        "script": ("train.py",),
        "is_module": False,
        "folder": str(folder),
        "deadline_s": time.monotonic() + 120,
        "block_s": 0.001,
        "most_rounds": 5,
        "combine": False,
    }
    return Plan(**(values | changed))


class Training:
    """A small training that a test runs in its own process."""

    def __init__(self, *, samples: int = 64, batch_size: int = 8, workers: int = 0, accumulate: int = 1) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        data = TensorDataset(torch.randn(samples, 4), torch.randn(samples, 1))
        self.loader: DataLoader[Any] = DataLoader(data, batch_size=batch_size, shuffle=True, num_workers=workers)
        self.accumulate = accumulate
        self.sizes: list[int] = []
        self.epochs = 0

    def epoch(self, loader: Sequence[Any] | DataLoader[Any] | None = None) -> None:
        """One loop over the loader."""
        self.epochs += 1
        for number, (inputs, targets) in enumerate(loader or self.loader):
            self.step(number, inputs, targets)

    def step(self, number: int, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Forward, backward, and the optimizer after each accumulated batch."""
        self.sizes.append(len(inputs))
        loss = (self.model(inputs) - targets).square().mean()
        loss.backward()
        if number % self.accumulate == self.accumulate - 1:
            self.optimizer.step()
            self.optimizer.zero_grad()


@contextmanager
def conducted(plan: Plan, now_s: Callable[[], float] = time.monotonic) -> Iterator[Journal]:
    """A journal of the experiments that take over any training in this block."""
    Path(plan.folder).mkdir(parents=True, exist_ok=True)
    journal = Journal(plan.journal)
    conductor = Conductor(plan, journal, now_s=now_s)
    try:
        yield journal
    finally:
        conductor.close()


def measured(
    plan: Plan, train: Callable[[], None], epochs: int = 1000, now_s: Callable[[], float] = time.monotonic
) -> list[AnyRow]:
    """Train until the experiments end it; returns their rows."""
    with conducted(plan, now_s) as journal:
        try:
            for _ in range(epochs):
                train()
        except ExperimentOverError:
            return journal.rows
    raise AssertionError("the experiments did not end the training")


def settings(**values: Value) -> dict[str, Value]:
    """Settings by name."""
    return values
