import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.experiments.building import Training, measured, plan_in
from tests.experiments.fake_cuda import GPU, FakeCuda
from traceadvisor.experiments.inside import blocks
from traceadvisor.experiments.inside.loop import Found, devices_of
from traceadvisor.experiments.journal import Begin, Facts, rounds_of
from traceadvisor.experiments.plan import Axis

UNUSED = 0
ARMS = (Axis(f"set:{__name__}.UNUSED", (1,)),)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The second GPU, with short blocks."""
    monkeypatch.setattr(blocks, "GPU_SETTLING_S", 0.0)
    monkeypatch.setattr(blocks, "GPU_BLOCK_S", 0.001)
    return FakeCuda(monkeypatch)


def test_the_device_of_the_parameters_is_synchronised_measured_and_named(tmp_path: Path, cuda: FakeCuda) -> None:
    rows = measured(plan_in(tmp_path, switches=ARMS), Training().epoch)
    assert {device for name, device in cuda.calls if name != "empty_cache"} == {GPU}
    facts = next(row for row in rows if isinstance(row, Facts))
    assert (facts.device, facts.device_name, facts.memory_bytes) == ("cuda", "Second GPU", 10 << 30)
    assert rounds_of(rows, "settings")[0].peak_bytes["A"] == 3 << 30  # of tensors


def test_a_gpu_counts_before_the_cpu_as_the_device_of_the_training() -> None:
    def found(*devices: str) -> Found:
        group: dict[str, Any] = {"params": [SimpleNamespace(device=torch.device(one)) for one in devices]}
        return SimpleNamespace(optimizers={1: SimpleNamespace(param_groups=[group])})  # type: ignore[return-value]

    assert devices_of(found("cpu", "cuda:1", "cuda:1", "cuda:2")) == [*map(torch.device, ("cuda:1", "cuda:2", "cpu"))]
    assert devices_of(found()) == [torch.device("cpu")]


def test_the_memory_of_an_arm_is_given_back_before_its_discarded_steps(tmp_path: Path, cuda: FakeCuda) -> None:
    training = Training()
    real_step = training.step

    def step(*args: Any) -> None:
        cuda.calls.append(("step", None))
        real_step(*args)

    training.step = step  # type: ignore[method-assign,assignment]
    measured(plan_in(tmp_path, switches=ARMS), training.epoch)
    names = [name for name, _ in cuda.calls if name != "synchronize"]
    blocks_at = [at for at, name in enumerate(names) if name == "reset_peak_memory_stats"]
    assert len(blocks_at) == 18  # with the script's own steps and two trials
    for at in blocks_at:
        assert names[at - blocks.SETTLING_STEPS : at] == ["step"] * blocks.SETTLING_STEPS
        assert "empty_cache" in names[at - 8 : at]


@pytest.mark.nightly("traceadvisor/experiments")
@pytest.mark.usefixtures("cuda")
def test_pinned_memory_of_a_batch_size_is_given_back_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, freed_after = Training(), set[int]()

    def free() -> None:
        freed_after.add(len(training.sizes))

    monkeypatch.setattr(torch._C, "_host_emptyCache", free, raising=False)
    measured(plan_in(tmp_path, axes=(Axis("batch_size", (4, 16)),)), training.epoch)
    sizes = training.sizes
    changes = {number for number in range(1, len(sizes)) if sizes[number] != sizes[number - 1]}
    assert changes
    assert changes <= freed_after


@pytest.mark.nightly("traceadvisor/experiments")
def test_on_a_gpu_blocks_and_what_is_discarded_before_take_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeCuda(monkeypatch)
    monkeypatch.setattr(blocks, "GPU_SETTLING_S", 0.05)
    monkeypatch.setattr(blocks, "GPU_BLOCK_S", 0.1)
    training = Training()
    times_s: list[float] = []

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            time.sleep(0.001)
            training.step(number, inputs, targets)
            times_s.append(time.perf_counter())

    rows = measured(plan_in(tmp_path, switches=ARMS), epoch)
    first = rounds_of(rows, "settings")[0]
    seconds = first.steps * sum(first.step_s.values()) / 3
    assert seconds > 3 * (0.05 + 0.08)  # first ideas of a step's length are too long by some


@pytest.mark.nightly("traceadvisor/experiments")
def test_the_shortest_block_on_a_gpu_is_planned_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(monkeypatch)
    monkeypatch.setattr(blocks, "GPU_SETTLING_S", 1.0)
    monkeypatch.setattr(blocks, "GPU_BLOCK_S", 60.0)
    training = Training()

    def epoch() -> None:  # the most steps of a block take longer than the time that is left
        for number, (inputs, targets) in enumerate(training.loader):
            time.sleep(0.006)
            training.step(number, inputs, targets)

    rows = measured(plan_in(tmp_path, switches=ARMS, by_importance=True, deadline_s=time.monotonic() + 20), epoch)
    assert not rounds_of(rows, "settings")
    assert len([row for row in rows if isinstance(row, Begin)]) < 10


def test_what_the_own_steps_use_and_retries_of_the_allocator_are_noted(tmp_path: Path, cuda: FakeCuda) -> None:
    training = Training()

    def epoch() -> None:
        for number, (inputs, targets) in enumerate(training.loader):
            cuda.stats["num_alloc_retries"] += UNUSED
            training.step(number, inputs, targets)

    rows = measured(plan_in(tmp_path, switches=ARMS), epoch)
    facts = next(row for row in rows if isinstance(row, Facts))
    assert (facts.state_bytes, facts.peak_bytes, facts.available_bytes) == (1 << 30, 3 << 30, 10 << 30)
    assert {arm for row in rounds_of(rows, "settings") for arm in row.retries} == {f"{__name__}.UNUSED=1"}
