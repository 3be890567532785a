from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.dist.dist008_per_gpu_batch import PerGpuBatch


def _step(kernel_us: tuple[int, int] = (40, 80)) -> TraceBuilder:
    """A step of 100 us: launching, a kernel, then exposed communication."""
    start, end = kernel_us
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, start).launch(start - 2, start, kernel=kernel_us)
    return builder.op("c10d::allreduce_", 45, 50).collective(45, 48, kernel=(end, 100))


def _captured(folder: Path, *, batch: int | None = 4, ranks: int = 8) -> Captured:
    return Captured(_step(), folder).with_loader(batch_size=batch).with_run(world_size=ranks)


def test_a_small_batch_on_many_idle_gpus_is_found(tmp_path: Path) -> None:
    found = _captured(tmp_path).finding(PerGpuBatch())
    assert (evidence(found, "samples per GPU"), evidence(found, "GPUs")) == (4, 8)
    assert evidence(found, "GPU idle time between launches") == 40_000
    assert evidence(found, "exposed communication") == 20_000
    assert found.saving.high_ns == pytest.approx(60_000 * 0.75)  # spread over 16 instead of 4
    assert found.locations == (LOOP,)


def test_gpus_of_one_process_share_its_batch(tmp_path: Path) -> None:
    builder = _step().launch(50, 52, kernel=(60, 70), device=1)
    captured = Captured(builder, tmp_path).with_loader(batch_size=16)
    assert evidence(captured.finding(PerGpuBatch()), "samples per GPU") == 8


def test_small_batches_that_keep_the_gpu_busy_are_clear(tmp_path: Path) -> None:
    captured = Captured(_step((5, 95)), tmp_path).with_loader(batch_size=4).with_run(world_size=8)
    outcome = captured.clear(PerGpuBatch())
    assert outcome.value == pytest.approx(0.1)
    assert outcome.remark == "the GPU is busy despite the small batch"


def test_a_batch_of_sixteen_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, batch=16).clear(PerGpuBatch()).value == 16


def test_a_single_gpu_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, ranks=1).outcome(PerGpuBatch()), Skipped)


def test_without_a_batch_size_the_rule_cannot_look(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, batch=None).outcome(PerGpuBatch()), Skipped)


@pytest.mark.parametrize(("kernel_us", "found"), [((9, 90), False), ((10, 90), True)])
def test_idle_time_counts_from_a_fifth_of_the_step(kernel_us: tuple[int, int], tmp_path: Path, *, found: bool) -> None:
    captured = Captured(_step(kernel_us), tmp_path).with_loader(batch_size=4).with_run(world_size=8)
    assert captured.is_found(PerGpuBatch()) is found
