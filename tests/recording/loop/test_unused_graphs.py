"""Nodes of autograd in loops without an optimizer step, counted in trainings that really run."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader, TensorDataset

from traceadvisor.bundle.layout import Schedule
from traceadvisor.bundle.settings import decode_settings
from traceadvisor.recording.capture import Capture
from traceadvisor.recording.options import CaptureOptions

NEVER = Schedule(skip_first=10**6, wait=0, warmup=1, active=8, repeat=1)


def _forward(model: nn.Module, batch: Tensor) -> None:
    model(batch)


def _backward(model: nn.Module, batch: Tensor) -> None:
    model(batch).sum().backward()


def _nodes(
    folder: Path,
    mode: Callable[[], AbstractContextManager[object]],
    validate: Callable[[nn.Module, Tensor], None] = _forward,
    *,
    breaks: bool = False,
) -> float | None:
    """Two epochs with a validation of three batches, each in a mode of gradients; the nodes per batch."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = TensorDataset(torch.ones(12, 4))
    with Capture(CaptureOptions(NEVER, folder=folder / "bundle")):
        training, checks = DataLoader(rows, batch_size=2), DataLoader(rows, batch_size=4)
        for _ in range(2):
            for (batch,) in training:
                optimizer.zero_grad()
                _backward(model, batch)
                optimizer.step()
            for (batch,) in checks:
                with mode():
                    validate(model, batch)
                if breaks:
                    break
    return decode_settings((folder / "bundle" / "settings.0.json").read_bytes()).validation_nodes


def test_validation_with_gradients_makes_the_nodes_of_the_model(tmp_path: Path) -> None:
    assert _nodes(tmp_path, nullcontext) == 6  # two of each linear layer, for its weight's transpose and the product


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_validation_without_gradients_makes_none(
    mode: Callable[[], AbstractContextManager[object]], tmp_path: Path
) -> None:
    assert _nodes(tmp_path, mode) == 0


def test_loops_that_run_a_backward_pass_are_no_validation(tmp_path: Path) -> None:
    assert _nodes(tmp_path, nullcontext, _backward) is None


def test_a_loop_that_does_not_come_to_its_end_tells_nothing(tmp_path: Path) -> None:
    assert _nodes(tmp_path, nullcontext, breaks=True) is None


def test_a_mode_of_the_script_hears_nothing_of_the_count(tmp_path: Path) -> None:
    heard = list[str]()

    class Listens(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def] # as torch's
            heard.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Listens():
        assert _nodes(tmp_path, nullcontext) is None
    assert heard
    assert "view" not in heard
