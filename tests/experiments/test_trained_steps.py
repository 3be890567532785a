from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experiments.building import Training, measured, plan_in
from tests.experiments.fake_cuda import FakeCuda
from traceadvisor.experiments.inside import blocks
from traceadvisor.experiments.inside.blocks import TrainedSteps
from traceadvisor.experiments.inside.loop import Found
from traceadvisor.experiments.inside.memory import PeakMemory
from traceadvisor.experiments.journal import Failed, rounds_of
from traceadvisor.experiments.plan import Axis

SIZES = (Axis("batch_size", (8, 16, 32)),)


def _catching(training: Training, cuda: FakeCuda | None = None) -> Any:
    """A loop that catches the error of each batch above 8 samples, and goes on."""

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            try:
                if len(inputs) > 8:
                    if cuda:
                        cuda.stats["num_ooms"] += 1
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
                training.step(number, inputs, targets)
            except torch.OutOfMemoryError:
                training.optimizer.zero_grad()

    return epoch


def test_an_arm_whose_batches_the_script_skips_has_failed(tmp_path: Path) -> None:
    rows = measured(plan_in(tmp_path, axes=SIZES), _catching(Training()))
    failed = {row.arm: row.reason for row in rows if isinstance(row, Failed)}
    assert "the script skipped steps: 0 optimizer steps in" in failed["batch_size=16"]
    assert "batch_size=32" in failed
    assert not any("=16" in arm or "=32" in arm for row in rounds_of(rows, "batch_size") for arm in row.seconds)


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_batch_size_that_runs_out_of_memory_unseen_ends_the_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "GPU_SETTLING_S", 0.0)
    monkeypatch.setattr(blocks, "GPU_BLOCK_S", 0.001)
    cuda = FakeCuda(monkeypatch)
    rows = measured(plan_in(tmp_path, axes=SIZES), _catching(Training(), cuda))
    failed = [row for row in rows if isinstance(row, Failed)]
    assert [(row.arm, row.out_of_memory) for row in failed] == [("batch_size=16", True)]
    assert "ran out of memory, and the script went on" in failed[0].reason


@pytest.mark.nightly("traceadvisor/experiments")
def test_an_arm_that_skips_some_batches_later_has_failed(tmp_path: Path) -> None:
    training = Training()
    seen = 0

    def epoch() -> None:
        nonlocal seen
        for number, (inputs, targets) in enumerate(training.loader):
            seen += len(inputs) == 16
            if len(inputs) == 16 and seen > 40 and seen % 4 == 0:
                continue
            training.step(number, inputs, targets)

    rows = measured(plan_in(tmp_path, axes=(Axis("batch_size", (8, 16)),)), epoch)
    assert "the script skipped steps" in next(row.reason for row in rows if isinstance(row, Failed))
    assert len(rounds_of(rows, "batch_size")) >= 5


@pytest.mark.parametrize(("steps", "is_lost"), [(5, False), (4, False), (3, True)])
def test_an_odd_block_of_a_script_that_steps_with_every_second_batch_has_half_a_step_less(
    steps: int, *, is_lost: bool
) -> None:
    found = Found(Training().loader)
    trained = TrainedSteps(found, PeakMemory(torch.device("cpu")))
    trained.begin()
    found.steps += 4
    trained.end(8)
    trained.are_own()
    trained.begin()
    found.steps += steps
    trained.end(9)
    assert (trained.lost() is not None) is is_lost


@pytest.mark.nightly("traceadvisor/experiments")
def test_a_script_that_skips_steps_itself_is_compared_with_itself(tmp_path: Path) -> None:
    training = Training()

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            if number % 4:
                training.step(number, inputs, targets)

    rows = measured(plan_in(tmp_path, axes=(Axis("batch_size", (8, 16)),)), epoch)
    assert not [row for row in rows if isinstance(row, Failed)]


class _Scaled:
    """Steps of a real gradient scaler, some with an infinite gradient."""

    def __init__(self, *, fused: bool) -> None:
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.optimizer = torch.optim.AdamW([self.weight], fused=fused)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
        self.found = Found.__new__(Found)
        self.found.scalers, self.found.optimizers, self.found.steps = {1: self.scaler}, {1: self.optimizer}, 0
        self.optimizer.register_step_post_hook(lambda *_: setattr(self.found, "steps", self.found.steps + 1))
        self.trained = TrainedSteps(self.found, PeakMemory(torch.device("cpu")))

    def steps(self, *infinite: bool) -> None:
        self.trained.begin()
        for one in infinite:
            self.scaler.scale(self.weight.sum() * (float("inf") if one else 1.0)).backward()  # type: ignore[no-untyped-call]
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        self.trained.end(len(infinite))


@pytest.mark.parametrize("fused", [False, True])
def test_steps_that_a_gradient_scaler_skips_are_no_steps(fused: bool) -> None:  # noqa: FBT001  # a parameter of the test
    scaled = _Scaled(fused=fused)
    scaled.steps(*[False] * 12)  # its scale grows twice
    scaled.trained.are_own()
    assert scaled.trained.lost() is None
    scaled.steps(*[False] * 12)
    assert scaled.trained.lost() is None
    scaled.steps(*(number in (1, 3) for number in range(6)))
    assert "the gradient scaler skipped steps" in str(scaled.trained.lost())
