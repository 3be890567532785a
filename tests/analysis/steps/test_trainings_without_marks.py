"""Trainings whose iterations have several optimizer steps: without step marks, the steps found are those marked.

Each training is recorded with marks. They are taken out of the recording. Each step found must hold the start of one.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer
from torch.profiler import ProfilerAction, ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from tests.few import few
from traceadvisor.analysis.steps.detection import find_marks
from traceadvisor.model.steps import StepSource
from traceadvisor.model.trace import Origin
from traceadvisor.parsing.trace_file import read_trace

WIDTH, SAMPLES, STEPS = 16, 4, 12

Training = Callable[[], Iterator[None]]
"""Trains, and yields at the end of each iteration."""


class Nested(Adam):
    """Calls the step of its base class, which torch marks once more."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Wrapper(Optimizer):
    """Calls the step of an optimizer of its class, as wrappers that average weights do."""

    def __init__(self, base: Optimizer) -> None:
        self.base = base
        super().__init__(base.param_groups, {})

    def step(self, closure: Any = None) -> Any:
        return self.base.step(closure)


def layers(*widths: int) -> nn.Sequential:
    return nn.Sequential(*(part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())))


def noise() -> torch.Tensor:
    return torch.randn(SAMPLES, WIDTH)


def drawn() -> Iterator[torch.Tensor]:
    while True:
        yield noise()


def loaded() -> Iterator[torch.Tensor]:
    for (batch,) in DataLoader(TensorDataset(torch.randn(4 * STEPS * SAMPLES, WIDTH)), batch_size=SAMPLES):
        yield batch


def descend(model: nn.Module, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()


def nested(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    model = layers(WIDTH, 1)
    optimizer = Wrapper(Nested(model.parameters()))
    for batch in batches:
        optimizer.zero_grad()
        descend(model, batch)
        optimizer.step()
        yield


def scaled(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    model, scaler = layers(WIDTH, 1), torch.amp.GradScaler("cpu")
    optimizer = Nested(model.parameters())
    for batch in batches:
        scaler.scale(model(batch).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        yield


def per_layer(batches: Iterator[torch.Tensor], *, accumulated: int = 1, skips: bool = False) -> Iterator[None]:
    model = layers(WIDTH, WIDTH, WIDTH, WIDTH, 1)
    kinds: list[Any] = [SGD, Nested, SGD, Adam]
    optimizers = [kind(layer.parameters()) for kind, layer in zip(kinds, list(model)[::2], strict=True)]
    for number, batch in enumerate(batches):
        descend(model, batch)
        if number % accumulated == accumulated - 1:
            for optimizer in optimizers[number % 4 == 3 and skips :]:
                optimizer.step()
                optimizer.zero_grad()
            yield


def in_backward(batches: Iterator[torch.Tensor]) -> Iterator[None]:
    """Optimizers that step in hooks of the backward pass, a part of which computes its forward pass again."""
    model = layers(WIDTH, WIDTH, WIDTH, 1)
    optimizers = {weights: SGD([weights]) for weights in model.parameters()}
    for weights in model.parameters():
        weights.register_post_accumulate_grad_hook(lambda weights: optimizers[weights].step())  # type: ignore[no-untyped-call]
    for batch in batches:
        hidden = checkpoint(model[:2], batch, use_reentrant=False)
        descend(model[2:], hidden)
        yield


def closure(batches: Iterator[torch.Tensor], kind: Callable[..., Optimizer]) -> Iterator[None]:
    model = layers(WIDTH, 1)
    optimizer = kind(model.parameters())

    def loss(batch: torch.Tensor) -> Any:
        optimizer.zero_grad()
        found = model(batch).square().mean()
        found.backward()
        return found

    for batch in batches:
        optimizer.step(partial(loss, batch))
        yield


def adversarial(
    batches: Iterator[torch.Tensor],
    generator: nn.Module,
    *,
    kind: Callable[..., Optimizer] = Adam,
    turns: int = 1,
    skips: bool = False,
) -> Iterator[None]:
    critic = layers(WIDTH, WIDTH, 1)
    first, second = Adam(critic.parameters()), kind(generator.parameters())
    for number, batch in enumerate(batches):
        for _ in range(turns):
            first.zero_grad()
            descend(critic, batch)
            descend(critic, generator(noise()).detach())
            first.step()
        if not skips or number % 5 != 4:
            second.zero_grad()
            descend(nn.Sequential(generator, critic), noise())
            second.step()
        yield


class Recurrent(nn.Module):
    """Runs its cell a varying number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.lengths = nn.GRUCell(WIDTH, WIDTH), random.Random(1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        state = batch
        for _ in range(self.lengths.randint(3, 7)):
            state = self.cell(batch, state)
        return state


def apart(*models: nn.Module, losses_first: bool = False) -> Iterator[None]:
    """Models that train side by side, each with an optimizer of the same class."""
    optimizers = [Adam(model.parameters()) for model in models]
    for batch in drawn():
        losses = [model(batch).square().mean() for model in models] if losses_first else []
        for number, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            (losses[number] if losses else model(batch).square().mean()).backward()
            optimizer.step()
        yield


def validated() -> Iterator[None]:
    """Only the validation has a loader."""
    model = layers(WIDTH, 1)
    optimizer = Nested(model.parameters())
    for number, batch in enumerate(drawn()):
        optimizer.zero_grad()
        descend(model, batch)
        optimizer.step()
        if number == STEPS // 2:
            with torch.no_grad():
                for held_out in loaded():
                    model(held_out)
        yield


def inner_loop() -> Iterator[None]:
    """Meta-learning: a few steps of a copy, then one of the model."""
    model, copy = layers(WIDTH, WIDTH, 1), layers(WIDTH, WIDTH, 1)
    outer, inner = Adam(model.parameters()), SGD(copy.parameters())
    for batch in drawn():
        for _ in range(3):
            inner.zero_grad()
            descend(copy, noise())
            inner.step()
        outer.zero_grad()
        descend(model, batch)
        outer.step()
        yield


TRAININGS: dict[str, Training] = {
    "optimizer that calls another": lambda: nested(drawn()),
    "optimizer that calls another, with a loader": lambda: nested(loaded()),
    "gradient scaler": lambda: scaled(drawn()),
    "optimizer per layer": lambda: per_layer(drawn()),
    "optimizer per layer, with a loader, accumulated": lambda: per_layer(loaded(), accumulated=3),
    "optimizer per layer, accumulated": lambda: per_layer(drawn(), accumulated=3),
    "optimizer per layer, one skipped at times": lambda: per_layer(drawn(), skips=True),
    "optimizer per parameter, in the backward pass": lambda: in_backward(drawn()),
    "optimizer per parameter, with a loader": lambda: in_backward(loaded()),
    "L-BFGS": lambda: closure(drawn(), torch.optim.LBFGS),
    "closure": lambda: closure(loaded(), Nested),
    "GAN": lambda: adversarial(drawn(), layers(WIDTH, WIDTH)),
    "GAN with optimizers of two classes": lambda: adversarial(drawn(), layers(WIDTH, WIDTH), kind=SGD),
    "GAN with a loader": lambda: adversarial(loaded(), layers(WIDTH, WIDTH)),
    "GAN, two critic steps": lambda: adversarial(drawn(), layers(WIDTH, WIDTH), turns=2),
    "GAN, generator skipped at times": lambda: adversarial(drawn(), layers(WIDTH, WIDTH), skips=True),
    "GAN with a loader, generator skipped at times": lambda: adversarial(loaded(), layers(WIDTH, WIDTH), skips=True),
    "GAN with sequences of any length": lambda: adversarial(drawn(), Recurrent()),
    "models of two sizes": lambda: apart(layers(WIDTH, 1), layers(WIDTH, WIDTH, 1)),
    "models of one size and two kinds": lambda: apart(layers(WIDTH, 1), nn.Sequential(nn.Linear(WIDTH, 1), nn.Tanh())),
    "both losses before both updates": lambda: apart(layers(WIDTH, 1), layers(WIDTH, 1), losses_first=True),
    "validation with a loader": validated,
    "inner loop": inner_loop,
}


@pytest.mark.parametrize("name", few(TRAININGS, "traceadvisor/analysis/steps"))
def test_each_step_found_without_marks_is_one_of_the_marked_ones(name: str, tmp_path: Path) -> None:
    marked = recorded(TRAININGS[name], tmp_path / "marked.pt.trace.json")
    plain = tmp_path / "plain.pt.trace.json"
    plain.write_bytes(marked.read_bytes().replace(b'"ProfilerStep#', b'"Part '))
    (_, marks), (source, steps) = (find_marks(read_trace(Origin(path, "", "", ""))) for path in (marked, plain))
    assert source is StepSource.OPTIMIZER
    assert [sum(step.start_ns < mark.start_ns <= step.end_ns for mark in marks) for step in steps] == [1] * len(steps)
    assert len(steps) >= STEPS - 2


def recorded(training: Training, path: Path) -> Path:
    torch.manual_seed(0)
    iterations = training()
    next(iterations)
    with profile(activities=[ProfilerActivity.CPU], schedule=lambda _: ProfilerAction.RECORD) as profiler:
        for _ in range(STEPS):
            next(iterations)
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return path
