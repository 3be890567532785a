"""Real loops of many kinds: the steps are those that the script itself times."""

import gzip
import itertools
import json
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.recording.running import manifest, steps, traces
from traceadvisor.api import load
from traceadvisor.bundle.layout import FileKind, Schedule
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.options import CaptureOptions

SHORT = Schedule(skip_first=1, wait=1, warmup=1, active=8, repeat=1)
STEPS = 24


def data(batches: int = STEPS, **arguments: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randn(4 * batches, 8)), batch_size=4, **arguments)


class Model:
    """A linear model with an optimizer of its own."""

    def __init__(self, optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD) -> None:
        self.layer = nn.Linear(8, 1)
        self.optimizer = optimizer(self.layer.parameters(), lr=0.01)

    def loss(self, inputs: torch.Tensor | None = None) -> torch.Tensor:
        outputs: torch.Tensor = self.layer(torch.randn(4, 8) if inputs is None else inputs)
        return outputs.pow(2).mean()

    def learn(self, inputs: torch.Tensor | None = None) -> None:
        self.optimizer.zero_grad()
        self.loss(inputs).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def closure(self) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


@dataclass
class OwnClock:
    """The script's own clock reads around what ends a step."""

    reads: list[tuple[int, int]] = field(default_factory=list)

    def around(self, work: Callable[[], object]) -> None:
        """Time the last call of an iteration; a boundary lies before it, in it, or after it and before the next."""
        before = time.perf_counter_ns()
        work()
        self.reads.append((before, time.perf_counter_ns()))

    def checks_returns(self, rows: list[TimedStep]) -> None:
        """Each step goes from the return of one timed call to that of the next. Nothing tells when the first began."""
        assert len(rows) == len(self.reads) - 1
        for row, (first, second) in zip(rows, pairwise(self.reads), strict=True):
            assert second[0] - first[1] <= row.duration_ns <= second[1] - first[0]

    def checks_fetches(self, rows: list[TimedStep]) -> None:
        """Each step goes from a fetch before a timed call to the next fetch after it."""
        assert len(rows) == len(self.reads)
        for row, (before, after) in zip(rows, self.reads, strict=True):
            assert row.duration_ns >= after - before
        for row, (first, second) in zip(rows[1:-1], zip(self.reads, self.reads[2:], strict=False), strict=True):
            assert row.duration_ns <= second[0] - first[1]


def captured(folder: Path, script: Callable[[], None]) -> list[TimedStep]:
    """Capture a script; returns its training steps."""
    with Capture(CaptureOptions(SHORT, folder=folder / "bundle")):
        script()
    assert manifest(folder / "bundle").notes == ()
    assert [file.whole for file in manifest(folder / "bundle").files if file.kind is FileKind.TRACE] == [True]
    rows = [row for row in steps(folder / "bundle") if row.state is not StepState.OTHER]
    assert sum(row.state is StepState.RECORDED for row in rows) == 8
    return rows


def test_discriminator_and_generator_fed_by_a_loader_are_one_step(tmp_path: Path) -> None:
    own, critic, generator = OwnClock(), Model(), Model()

    def iteration(batch: torch.Tensor) -> None:
        critic.learn(batch)
        critic.learn()
        generator.learn()

    def train() -> None:
        for (batch,) in data():
            own.around(lambda batch=batch: iteration(batch))  # type: ignore[misc]

    own.checks_fetches(captured(tmp_path, train))


def test_optimizers_that_are_made_again_go_on_with_the_same_steps(tmp_path: Path) -> None:
    """As where a model gets more parameters: two optimizers of one kind, both made again in every fifth step."""
    own, models = OwnClock(), [Model(), Model()]

    def iteration(step: int) -> None:
        for model in models:
            model.learn()
            if step % 5 == 4:
                model.optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.01)

    def train() -> None:
        for step in range(STEPS):
            own.around(lambda step=step: iteration(step))  # type: ignore[misc]

    own.checks_returns(captured(tmp_path, train))


def test_five_critic_steps_and_one_of_the_generator_are_one_step(tmp_path: Path) -> None:
    own, critic, generator = OwnClock(), Model(), Model()

    def train() -> None:
        for _ in range(STEPS):
            for _ in range(5):
                critic.learn()
            own.around(generator.learn)

    own.checks_returns(captured(tmp_path, train))


@pytest.mark.nightly("traceadvisor/recording")
def test_one_optimizer_per_layer_is_one_step(tmp_path: Path) -> None:
    own, layers = OwnClock(), [Model() for _ in range(30)]

    def train() -> None:
        for _ in range(STEPS):
            for layer in layers[:-1]:
                layer.learn()
            own.around(layers[-1].learn)

    own.checks_returns(captured(tmp_path, train))


def test_an_optimizer_with_a_closure_makes_one_step(tmp_path: Path) -> None:
    own = OwnClock()
    model = Model(lambda parameters, lr: torch.optim.LBFGS(parameters, lr=lr, max_iter=3))

    def train() -> None:
        for _ in range(STEPS):
            own.around(lambda: model.optimizer.step(model.closure))

    own.checks_returns(captured(tmp_path, train))


@pytest.mark.nightly("traceadvisor/recording")
def test_epochs_over_one_fetched_rollout_are_one_step(tmp_path: Path) -> None:
    own, policy = OwnClock(), Model()

    def iteration(batch: torch.Tensor) -> None:
        for _ in range(3 * 4):
            policy.learn(batch)

    def train() -> None:
        for (batch,) in data():
            own.around(lambda batch=batch: iteration(batch))  # type: ignore[misc]

    own.checks_fetches(captured(tmp_path, train))


def prefetched(loader: Iterable[Any]) -> Iterator[Any]:
    """Batches that a thread of its own fetches ahead."""
    ready: queue.Queue[Any] = queue.Queue(2)

    def fetch() -> None:
        for batch in loader:
            ready.put(batch)
        ready.put(None)

    threading.Thread(target=fetch, daemon=True).start()
    while (batch := ready.get()) is not None:
        yield batch


def restarted(loader: Iterable[Any]) -> Iterator[Any]:
    """Batches without end: a new loop over the loader once one is over."""
    iterator = iter(loader)
    while True:
        try:
            yield next(iterator)
        except StopIteration:
            iterator = iter(loader)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: ([torch.randn(4, 8)] for _ in itertools.count()), id="generator"),
        pytest.param(lambda: itertools.repeat(next(iter(data()))), id="one batch"),
    ],
)
@pytest.mark.parametrize("optimizers", [1, 2])
def test_optimizers_show_the_steps_of_a_loop_whose_batches_come_from_elsewhere(
    source: Callable[[], Iterator[Any]], optimizers: int, tmp_path: Path
) -> None:
    own, models = OwnClock(), [Model() for _ in range(optimizers)]
    batches = source()

    def train() -> None:
        for (batch,) in itertools.islice(batches, STEPS):
            for model in models[:-1]:
                model.learn(batch)
            own.around(lambda batch=batch: models[-1].learn(batch))  # type: ignore[misc]

    own.checks_returns(captured(tmp_path, train))
    assert manifest(tmp_path / "bundle").endings[0].steps == STEPS, "the first one has no time, but counts"


@pytest.mark.parametrize("optimizers", [1, 2])
def test_batches_of_a_thread_that_iterates_a_loader_are_steps(optimizers: int, tmp_path: Path) -> None:
    own, models = OwnClock(), [Model() for _ in range(optimizers)]
    batches = prefetched(data(2 * STEPS))

    def train() -> None:
        for (batch,) in itertools.islice(batches, STEPS):
            for model in models[:-1]:
                model.learn(batch)
            own.around(lambda batch=batch: models[-1].learn(batch))  # type: ignore[misc]

    rows = captured(tmp_path, train)
    for row, (before, after) in zip(
        rows[2:], own.reads[-len(rows) + 2 :], strict=True
    ):  # the thread is known from then on
        assert row.duration_ns >= after - before


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: restarted(data(5)), id="restarted"),
        pytest.param(lambda: (next(iter(loader)) for loader in itertools.repeat(data(5))), id="a batch each time"),
        pytest.param(lambda: (a for a, _ in zip(restarted(data(5)), restarted(data(3)), strict=True)), id="zipped"),
        pytest.param(
            lambda: (next(each) for each in itertools.cycle([restarted(data(5)), restarted(data(3))])), id="in turn"
        ),
        pytest.param(lambda: itertools.chain.from_iterable(data(6) for _ in itertools.count()), id="new loaders"),
        pytest.param(lambda: (next(iter(data(1))) for _ in itertools.count()), id="a new loader each time"),
    ],
)
def test_each_batch_of_the_loaders_of_a_loop_is_a_step(source: Callable[[], Iterator[Any]], tmp_path: Path) -> None:
    own, critic, generator = OwnClock(), Model(), Model()

    def iteration(batch: torch.Tensor) -> None:
        critic.learn(batch)
        generator.learn(batch)

    def train() -> None:
        for (batch,) in itertools.islice(source(), STEPS):
            own.around(lambda batch=batch: iteration(batch))  # type: ignore[misc]

    own.checks_fetches(captured(tmp_path, train))


def test_batches_that_are_kept_and_repeated_go_on_with_the_same_steps(tmp_path: Path) -> None:
    critic, generator = Model(), Model()

    def train() -> None:
        for (batch,) in itertools.islice(itertools.cycle(data(5)), STEPS):
            critic.learn(batch)
            generator.learn(batch)

    rows = captured(tmp_path, train)
    assert [row.fetches for row in rows] == [1] * 5 + [0] * (STEPS - 5)


def test_a_window_spans_short_epochs_and_leaves_validation_out(tmp_path: Path) -> None:
    own, model = OwnClock(), Model()
    training, validation = data(5), data(6)

    def train() -> None:
        for _ in range(6):
            for (batch,) in training:
                own.around(lambda batch=batch: model.learn(batch))  # type: ignore[misc]
            with torch.no_grad():
                for (batch,) in validation:
                    model.loss(batch)

    rows = captured(tmp_path, train)
    assert len(rows) == len(own.reads) == 30
    (recording,) = load(tmp_path / "bundle").recordings
    kept = {row.step.index for row in recording.steps if row.step.kept}
    assert kept == {row.index for row in rows if row.state is StepState.RECORDED}
    left_out = [row.step.left_out for row in recording.steps if not row.step.kept]
    assert (
        left_out
        == [
            "the profiler had just started",
            "it is the time between two epochs, or before or after validation",
            "it is not a training step",
            "it is the time between two epochs, or before or after validation",
        ]
        or left_out.count("it is not a training step") == 2
    ), "one gap, or two"
    document = json.loads(gzip.decompress(traces(tmp_path / "bundle")[0].read_bytes()))
    forward = [
        event["ts"]
        for event in document["traceEvents"]
        if event.get("cat") == "cpu_op" and event["name"] == "aten::linear"
    ]
    for event in document["traceEvents"]:
        if event["name"] in {f"ProfilerStep#{index}" for index in kept}:
            inside = sum(event["ts"] <= at < event["ts"] + event["dur"] for at in forward)
            assert inside == 1, "validation lies in no step"


def test_steps_that_the_script_marks_later_replace_those_found_before(tmp_path: Path) -> None:
    policy = Model()
    with Capture(CaptureOptions(SHORT, folder=tmp_path / "bundle")) as capture:
        for _ in range(STEPS):
            for _ in range(15):
                policy.learn()
            capture.step()
    rows = [row for row in steps(tmp_path / "bundle") if row.state is not StepState.OTHER]
    assert len(rows) == STEPS
    whole = [file.whole for file in manifest(tmp_path / "bundle").files if file.whole is not None]
    assert whole == [True]
    assert len(traces(tmp_path / "bundle")) == 1
    assert sum(row.state is StepState.RECORDED for row in rows) == 8


@pytest.mark.nightly("traceadvisor/recording")
def test_long_iterations_that_hold_many_optimizer_steps_are_named(tmp_path: Path) -> None:
    policy = Model()
    with Capture(CaptureOptions(SHORT, folder=tmp_path / "bundle")):
        for _ in range(10):
            time.sleep(0.1)
            for _ in range(8):
                policy.learn()
    (note,) = manifest(tmp_path / "bundle").notes
    assert note.code == "steps-uncertain"
    assert "One step in 8 takes most of the time" in note.message
    assert "call traceadvisor.step()" in note.message


def test_work_of_each_nth_iteration_of_a_single_loop_is_no_iteration_of_many_steps(tmp_path: Path) -> None:
    """Such as a test of the model after each eighth one."""
    script = """
with Capture(options):
    for number in range(80):
        policy.learn()
        if number % 8 == 7:
            time.sleep(0.1)
"""
    options = CaptureOptions(SHORT, folder=tmp_path / "bundle")
    names = {"Capture": Capture, "options": options, "policy": Model(), "time": time, "__name__": "__main__"}
    exec(compile(script, "train.py", "exec"), names)  # noqa: S102  # a module of its own
    assert manifest(tmp_path / "bundle").notes == ()


def test_optimizers_without_a_stable_pattern_are_named(tmp_path: Path) -> None:
    models = [Model() for _ in range(3)]
    with Capture(CaptureOptions(SHORT, folder=tmp_path / "bundle")):
        for model in random.Random(0).choices(models, k=400):
            model.learn()
    (note,) = [note for note in manifest(tmp_path / "bundle").notes if note.code == "steps-uncertain"]
    assert "no stable pattern" in note.message


def test_an_optimizer_forgets_the_backward_passes_before_it(tmp_path: Path) -> None:
    """More than it may accumulate: they were taken for steps of a script that updates its parameters itself."""
    model = Model()
    with Capture(CaptureOptions(SHORT, folder=tmp_path / "bundle")):
        for _ in range(100):
            model.loss().backward()  # type: ignore[no-untyped-call]
        for _ in range(STEPS):
            model.learn()
    assert manifest(tmp_path / "bundle").endings[0].steps == STEPS


def test_optimizers_that_step_in_the_backward_pass_of_a_gpu_make_steps(tmp_path: Path) -> None:
    """The backward pass runs in a thread of its own there, and the training thread waits for it."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters()}

    def step(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]
    with Capture(CaptureOptions(SHORT, folder=tmp_path / "bundle")) as capture:
        for (inputs,) in data():
            backward = threading.Thread(target=model(inputs).sum().backward)
            backward.start()
            backward.join()
    assert capture.captured
    assert (capture.captured.steps, capture.captured.recorded_steps) == (STEPS, 8)
    rows = steps(tmp_path / "bundle")
    assert [row.fetches for row in rows if row.state is not StepState.OTHER] == [1] * STEPS
    assert not manifest(tmp_path / "bundle").notes
