"""Trainings that replay CUDA graphs, on a fake device under torch's own classes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.recording.fake_cuda import FakeCuda
from tests.recording.loop.test_loop_capture import Training, captured, marks
from tests.recording.running import manifest, settings, steps
from traceadvisor.bundle.layout import Schedule
from traceadvisor.recording.capture import Capture

NOW = Schedule(skip_first=0, wait=0, warmup=1, active=8, repeat=1)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    cuda = FakeCuda(lambda owner, name, value: monkeypatch.setattr(owner, name, value, raising=False))
    yield cuda
    assert "invalidated" not in cuda.captures


def whole_step(training: Training, cuda: FakeCuda, *, optimizers: int = 1) -> torch.cuda.CUDAGraph:
    """A graph with a whole training step in it, as torch's documentation captures it: after some plain steps."""
    (batch,) = list(training.loader)[:1]
    others = [torch.optim.SGD(training.model.parameters(), lr=0.01) for _ in range(optimizers - 1)]
    for _ in range(3):
        training.learn(batch)
        for optimizer in (training.optimizer, *others):
            optimizer.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=cuda.stream):  # type: ignore[arg-type]
        training.learn(batch)
        for optimizer in (training.optimizer, *others):
            optimizer.step()
    return graph


def test_the_replay_of_a_graph_with_a_whole_step_is_a_step(tmp_path: Path, cuda: FakeCuda) -> None:
    with captured(tmp_path) as capture:
        graph = whole_step(Training(), cuda)
        for _ in range(30):
            graph.replay()
    check(tmp_path / "bundle", capture, cuda, replays=30)


def check(bundle: Path, capture: Capture, cuda: FakeCuda, *, replays: int) -> None:
    assert cuda.captures == ["ended"]
    assert cuda.replays == replays
    assert capture.captured
    assert capture.captured.recorded_steps == 8
    assert abs(len(steps(bundle)) - replays - 3) <= 1, "the first step without a loader has no beginning"
    assert len(marks(bundle)) >= 9
    assert manifest(bundle).notes == ()
    assert settings(bundle).optimizer == "SGD"


def test_a_loader_may_feed_the_graph(tmp_path: Path, cuda: FakeCuda) -> None:
    training = Training()
    with captured(tmp_path, NOW) as capture:
        graph = whole_step(training, cuda)
        for _ in training.loader:
            graph.replay()
    assert capture.captured
    assert capture.captured.recorded_steps == 8
    assert [row.fetches for row in steps(tmp_path / "bundle")][-12:] == [1] * 12


def test_two_optimizers_in_a_graph_are_one_step(tmp_path: Path, cuda: FakeCuda) -> None:
    with captured(tmp_path) as capture:
        graph = whole_step(Training(), cuda, optimizers=2)
        for _ in range(30):
            graph.replay()
    check(tmp_path / "bundle", capture, cuda, replays=30)


def test_a_graph_without_an_optimizer_is_a_part_of_a_step(tmp_path: Path, cuda: FakeCuda) -> None:
    """As those of ``torch.cuda.make_graphed_callables``."""
    training = Training()
    with captured(tmp_path):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=cuda.stream):  # type: ignore[arg-type]
            pass
        for batch in training.loader:
            training.learn(batch)
            graph.replay()
            graph.replay()
            training.optimizer.step()
    assert len(steps(tmp_path / "bundle")) == 16


def test_a_graph_that_is_captured_anew_holds_what_its_last_capture_held(tmp_path: Path, cuda: FakeCuda) -> None:
    training = Training()
    with captured(tmp_path):
        graph = whole_step(training, cuda)
        with torch.cuda.graph(graph, stream=cuda.stream):  # type: ignore[arg-type]
            pass
        for _ in range(30):
            graph.replay()
    assert len(steps(tmp_path / "bundle")) < 10


@pytest.mark.parametrize("first", [1, 2, 3, 6, 10, 11, 12])
def test_the_recording_neither_starts_nor_ends_during_the_capture_of_a_graph(
    tmp_path: Path, cuda: FakeCuda, first: int
) -> None:
    """Whatever phase it is in: a wait for the device would break the capture."""
    training = Training()
    graph = torch.cuda.CUDAGraph()
    with captured(tmp_path, NOW) as capture:
        for number, batch in enumerate(training.loader):
            if number == first:
                with torch.cuda.graph(graph, stream=cuda.stream):  # type: ignore[arg-type]
                    training.learn(batch)
                    training.optimizer.step()
                    capture.step()
            training.learn(batch)
            training.optimizer.step()
            capture.step()
    assert cuda.captures == ["ended"]
