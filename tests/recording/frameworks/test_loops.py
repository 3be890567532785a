"""Loops that no framework runs, captured in this process: what feeds them, and how many optimizers step in them."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.recording.frameworks.comparing import OwnStep, own_steps, timed_as
from tests.recording.frameworks.scripts.own_clock import OwnClock
from tests.recording.running import manifest, settings, steps, traces
from traceadvisor.bundle.layout import Schedule
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.options import CaptureOptions

BATCHES = 20
SCHEDULE = Schedule(skip_first=2, wait=0, warmup=1, active=8, repeat=1)


class Training:
    """A linear model; its clock is read once a step has its batch, and before its last optimizer steps."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model, self.critic = nn.Linear(8, 8), nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.critics = torch.optim.SGD(self.critic.parameters(), lr=0.01)
        self.clock = OwnClock()
        self.losses: list[float] = []

    def begin(self) -> None:
        self.clock.begin()
        self.clock.pause()

    def learn(self, inputs: torch.Tensor) -> None:
        self.begin()
        self.update(inputs)

    def update(self, inputs: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.backward(nn.functional.mse_loss(self.model(inputs), inputs))
        self.clock.end()
        self.optimizer.step()

    def criticize(self, inputs: torch.Tensor) -> None:
        self.critics.zero_grad()
        self.backward(self.critic(self.model(inputs).detach()).square().mean())
        self.critics.step()

    def backward(self, loss: torch.Tensor) -> None:
        self.losses.append(loss.item())
        loss.backward()  # type: ignore[no-untyped-call]

    def evaluate(self, loader: DataLoader[Any]) -> None:
        with torch.no_grad():
            self.losses.extend(self.model(inputs).sum().item() for (inputs,) in loader)


def loader(batches: int = BATCHES, **arguments: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randn(4 * batches, 8)), batch_size=4, **arguments)


class Rows(IterableDataset[torch.Tensor]):
    """Makes its batches itself."""

    def __init__(self, batches: int = BATCHES) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.batches):
            yield torch.randn(4, 8)


class Rewinding(IterableDataset[torch.Tensor]):
    """Its own iterator, which a weak dictionary refuses."""

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Rewinding:
        self.left = BATCHES
        return self

    def __next__(self) -> torch.Tensor:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return torch.randn(4, 8)


class OwnIterator(Rewinding):
    """Its own iterator."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __iter__(self) -> OwnIterator:
        super().__iter__()
        return self

    def __next__(self) -> torch.Tensor:
        return super().__next__()


class Own:
    """An iterator that knows nothing of torch's loaders."""

    def __init__(self) -> None:
        self.left = BATCHES

    def __iter__(self) -> Own:
        return self

    def __next__(self) -> torch.Tensor:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return torch.randn(4, 8)


class Endless(DataLoader[Any]):
    """Keeps one iterator over all epochs, whose end nobody sees."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for _ in range(len(self)):
            yield next(self.iterator)

    @property
    def iterator(self) -> Iterator[Any]:
        if "kept" not in self.__dict__:
            self.__dict__["kept"] = itertools.cycle(super().__iter__())
        return self.__dict__["kept"]  # type: ignore[no-any-return]


class Ahead:
    """Takes each batch one step ahead, as loops for GPUs do to overlap its copy."""

    def __init__(self, batches: DataLoader[Any]) -> None:
        self.iterator = iter(batches)
        self.preload()

    def preload(self) -> None:
        self.batch = next(self.iterator, None)

    def next(self) -> Any:
        batch = self.batch
        self.preload()
        return batch


class Background:
    """Runs through a loader in a thread of its own, and takes batches by a method from before that thread ran.

    Queues are hooked once a thread iterates a loader, so nothing tells these fetches.
    """

    def __init__(self, batches: DataLoader[Any]) -> None:
        self.taken: queue.Queue[Any] = queue.Queue(2)
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        take = self.taken.get
        thread = threading.Thread(target=self.fill)
        thread.start()
        yield from iter(take, None)
        thread.join()

    def fill(self) -> None:
        for batch in self.batches:
            self.taken.put(batch)
        self.taken.put(None)


def two_epochs(training: Training) -> None:
    batches = loader()
    for _ in range(2):
        for (inputs,) in batches:
            training.learn(inputs)


def subclass(training: Training) -> None:
    batches = Endless(TensorDataset(torch.randn(4 * BATCHES, 8)), batch_size=4)
    for _ in range(2):
        for (inputs,) in batches:
            training.learn(inputs)
        training.evaluate(loader(3))


def data_set(training: Training) -> None:
    rows = Rows()
    for _ in range(2):
        for inputs in rows:
            training.learn(inputs)
        training.evaluate(loader(3))


def own_data_set_iterator(training: Training) -> None:
    rows = OwnIterator()
    for _ in range(2):
        for inputs in rows:
            training.learn(inputs)
        training.evaluate(loader(3))
    assert len(list(DataLoader(rows, batch_size=1))) == BATCHES


def data_set_in_loader(training: Training) -> None:
    for (inputs,) in DataLoader(Rows(2 * BATCHES), batch_size=1):
        training.learn(inputs)


def ahead(training: Training) -> None:
    batches = loader()
    for _ in range(2):
        fetcher = Ahead(batches)
        while (batch := fetcher.next()) is not None:
            training.learn(batch[0])
        training.evaluate(loader(3))


def lbfgs(training: Training) -> None:
    optimizer = torch.optim.LBFGS(training.model.parameters(), lr=0.01, max_iter=3)
    for (inputs,) in loader(2 * BATCHES):
        training.begin()

        def closure(inputs: torch.Tensor = inputs) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(training.model(inputs), inputs)
            training.backward(loss)
            return loss

        training.clock.end()
        optimizer.step(closure)  # type: ignore[no-untyped-call]


def adversarial(training: Training) -> None:
    """The critic steps twice in each iteration, the model in every third."""
    for number, (inputs,) in enumerate(loader(2 * BATCHES)):
        training.begin()
        training.criticize(inputs)
        if number % 3 == 2:
            training.update(inputs)
        training.clock.end()
        training.criticize(inputs)


def accumulating(training: Training) -> None:
    for number, (inputs,) in enumerate(loader(6 * BATCHES)):
        if number % 3 == 0:
            training.begin()
        training.backward(nn.functional.mse_loss(training.model(inputs), inputs))
        if number % 3 == 2:
            training.clock.end()
            training.optimizer.step()
            training.optimizer.zero_grad()


def buffered(training: Training) -> None:
    """As PPO: collects experience without gradients, then runs twice through a loader over it."""
    for _ in range(5):
        with torch.no_grad():
            experience = training.model(torch.randn(16, 8))
        batches = DataLoader(TensorDataset(experience), batch_size=4, shuffle=True)
        for _ in range(2):
            for (inputs,) in batches:
                training.begin()
                training.criticize(inputs)
                training.update(inputs)


def cycled(training: Training) -> None:
    for _, (inputs,) in zip(range(2 * BATCHES), itertools.cycle(loader(BATCHES // 2)), strict=False):
        training.learn(inputs)


FED = (
    two_epochs,
    subclass,
    data_set,
    own_data_set_iterator,
    data_set_in_loader,
    ahead,
    lbfgs,
    adversarial,
    accumulating,
    buffered,
    cycled,
)


def background(training: Training) -> None:
    for (inputs,) in Background(loader(2 * BATCHES)):
        training.learn(inputs)


def generator(training: Training) -> None:
    for inputs in (torch.randn(4, 8) for _ in range(2 * BATCHES)):
        training.learn(inputs)


def own_iterator(training: Training) -> None:
    for _ in range(2):
        for inputs in Own():
            training.learn(inputs)


def refusing_data_set(training: Training) -> None:
    for _ in range(2):
        for inputs in Rewinding():
            training.learn(inputs)


def lbfgs_without_loader(training: Training) -> None:
    optimizer = torch.optim.LBFGS(training.model.parameters(), lr=0.01, max_iter=3)
    inputs = torch.randn(4, 8)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(training.model(inputs), inputs)
        training.backward(loss)
        return loss

    for _ in range(2 * BATCHES):
        training.begin()
        training.clock.end()
        optimizer.step(closure)  # type: ignore[no-untyped-call]


def adversarial_without_loader(training: Training) -> None:
    """The critic steps three times in each iteration, the model once."""
    for _ in range(2 * BATCHES):
        training.begin()
        inputs = torch.randn(4, 8)
        for _ in range(3):
            training.criticize(inputs)
        training.update(inputs)


def policy(training: Training) -> None:
    """As PPO: collects experience without gradients, then steps both optimizers for each part of it."""
    for _ in range(5):
        with torch.no_grad():
            experience = training.model(torch.randn(16, 8))
        for _ in range(2):
            for part in torch.randperm(16).view(4, 4):
                training.begin()
                training.criticize(experience[part])
                training.update(experience[part])


UNFED = (
    background,
    generator,
    own_iterator,
    refusing_data_set,
    lbfgs_without_loader,
    adversarial_without_loader,
    policy,
)


def captured(run: Callable[[Training], None], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[OwnStep]:
    """Run a loop plainly, then captured; the losses are the same. Returns the steps of the captured run."""
    monkeypatch.chdir(folder)
    plain = Training()
    run(plain)
    with Capture(CaptureOptions(SCHEDULE, folder=folder / "bundle")):
        training = Training()
        run(training)
    assert training.losses == plain.losses
    training.clock.write()
    return own_steps(folder)


def recorded_once(folder: Path, own: list[OwnStep]) -> list[TimedStep]:
    """The bundle has the script's steps and times, and one whole recording."""
    rows = timed_as(own, steps(folder / "bundle"))
    assert manifest(folder / "bundle").notes == ()
    assert sum(row.state is StepState.RECORDED for row in rows) == 8
    assert len(traces(folder / "bundle")) == 1
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("run", FED, ids=lambda run: run.__name__)
def test_the_steps_of_a_fed_loop_are_its_iterations(
    run: Callable[[Training], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_once(tmp_path, captured(run, tmp_path, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize("run", UNFED, ids=lambda run: run.__name__)
def test_the_steps_of_an_unfed_loop_are_the_turns_of_its_optimizers(
    run: Callable[[Training], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells when the first of them began."""
    rows = recorded_once(tmp_path, captured(run, tmp_path, monkeypatch)[1:])
    assert not any(row.fetches or row.loader_ns for row in rows)
    assert settings(tmp_path / "bundle").loader is None


@pytest.mark.slow
@pytest.mark.parametrize("run", [subclass, data_set, own_data_set_iterator], ids=lambda run: run.__name__)
def test_each_step_of_a_feed_takes_one_batch_and_validation_is_no_step(
    run: Callable[[Training], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured(run, tmp_path, monkeypatch)
    rows = steps(tmp_path / "bundle")
    assert [row.fetches for row in rows if row.state is not StepState.OTHER] == [1] * 2 * BATCHES
    passed_over = [row.fetches for row in rows if row.state is StepState.OTHER and row.fetches]
    assert passed_over == ([3, 3, BATCHES] if run is own_data_set_iterator else [3, 3])
    trained = [row for row in rows if row.state is not StepState.OTHER]
    assert [number for number, row in enumerate(trained) if row.loader_start_ns] == [0, BATCHES]
    found = settings(tmp_path / "bundle").loader
    assert found
    assert found.batch_size == (4 if run is subclass else None)


@pytest.mark.slow
def test_the_time_to_start_the_loop_inside_a_feed_is_separate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapped(IterableDataset[Any]):
        def __init__(self) -> None:
            self.inner = loader(2 * BATCHES, num_workers=1)  # a pause drains its queue for some steps

        def __iter__(self) -> Iterator[Any]:
            yield from self.inner

    def run(training: Training) -> None:
        for (inputs,) in Wrapped():
            training.learn(inputs)

    rows = recorded_once(tmp_path, captured(run, tmp_path, monkeypatch))
    first, *others = rows
    assert (first.loader_start_ns or 0) > 100_000, "a process is started"
    assert not any(row.loader_start_ns for row in others)
    assert (first.loader_start_ns or 0) + first.loader_ns <= first.duration_ns
    found = settings(tmp_path / "bundle").loader
    assert found
    assert (found.batch_size, found.worker_count, found.batch_count) == (4, 1, 2 * BATCHES)
