from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, record_function
from torch.profiler.profiler import _KinetoProfile

from traceadvisor.model.run import SameResults
from traceadvisor.recording.loop import same_results as module
from traceadvisor.recording.loop.same_results import MANY_STEPS, same_results


@pytest.fixture(autouse=True)
def _is_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are the script."""
    monkeypatch.setattr(module, "_is_own", lambda file: file.endswith("test_same_results.py"))


def _found(folder: Path, step: Callable[[], object]) -> tuple[SameResults, ...] | None:
    profiler = _KinetoProfile(
        activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True
    )
    profiler.start()
    for number in range(MANY_STEPS):
        with record_function(f"ProfilerStep#{number}"):
            step()
    profiler.stop()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    return same_results(profiler, (folder / "trace.json").read_bytes())


def _model(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))


def _run_twice(model: nn.Module, between: Callable[[Tensor], Tensor]) -> None:
    given = torch.randn(512, 64)
    first = model(given)
    second = model(between(given))
    (first.detach() + second).sum().backward()


def test_a_module_that_runs_twice_on_one_tensor_is_found(tmp_path: Path) -> None:
    model = _model()
    found = _found(tmp_path, lambda: _run_twice(model, lambda given: given))
    assert found
    assert (found[0].module, found[0].is_constant, found[0].step_count) == ("Sequential", False, MANY_STEPS)
    assert found[0].again.line == found[0].first.line + 1
    assert len(found[0].operators) == MANY_STEPS


def test_other_values_weights_and_random_numbers_are_not_the_same(tmp_path: Path) -> None:
    plain, drops, norms = _model(), _model(nn.Dropout(0.1)), _model(nn.BatchNorm1d(64))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)

    def updated(given: Tensor) -> Tensor:
        plain(given).sum().backward()
        optimizer.step()
        return given

    def step() -> None:
        with torch.no_grad():
            changed = torch.randn(512, 64)
            plain(changed)
            plain(changed.add_(1))
            for part in torch.randn(512, 64).chunk(2):
                plain(part)
        _run_twice(drops, lambda given: given)
        _run_twice(norms, lambda given: given)
        plain(torch.randn(512, 64))

    assert _found(tmp_path, step) == ()


def test_a_matrix_that_is_made_in_each_step_is_constant(tmp_path: Path) -> None:
    edges = torch.rand(128, 128)

    def normalised() -> Tensor:
        around = edges + torch.eye(128)
        return around @ around

    found = _found(tmp_path, normalised)
    assert found
    assert found[0].is_constant


def test_too_few_steps_tell_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_STEPS", 2 * MANY_STEPS)
    assert _found(tmp_path, lambda: torch.ones(3)) is None
