from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.mem.mem002_room_for_batch import RoomForBatch

GB = 10**9


def _launch_bound() -> TraceBuilder:
    """Build a step that is half idle between launches. It holds 1 GB, 32 samples add 2 GB, and the GPU has 20 GB."""
    builder = TraceBuilder().device(0, totalGlobalMem=20 * GB).step(0, 0, 100)
    for start in range(0, 100, 10):
        builder.op("aten::add", start, start + 10).launch(start + 1, start + 4, kernel=(start + 5, start + 10))
    return builder.memory(1, 1024, total_allocated=GB).memory(50, 1024, total_allocated=3 * GB)


def test_free_memory_with_a_gpu_that_waits_for_launches_is_found_with_the_largest_batch(tmp_path: Path) -> None:
    found = Captured(_launch_bound(), tmp_path).loader(batch=32).device(memory=3 * GB).finding(RoomForBatch())
    assert evidence(found, "memory per sample") == pytest.approx(2 * GB / 32)
    # Four fifths of 20 GB, minus 1 GB held between steps, leave 15 GB for samples of 62.5 MB.
    assert evidence(found, "predicted largest batch") == 240


def test_with_known_activations_they_and_temporary_tensors_grow(tmp_path: Path) -> None:
    # 1 GB is held between steps; 32 samples add 2 GB of activations and 2 GB of other memory. The limit is 16 GB.
    builder = TraceBuilder().device(0, totalGlobalMem=20 * GB).step(0, 0, 100)
    for start in range(0, 100, 10):
        builder.op("aten::add", start, start + 5).launch(start + 1, start + 4, kernel=(start + 5, start + 10))
    builder.op("autograd::engine::evaluate_function: MulBackward0", 50, 90, thread=AUTOGRAD)
    builder.memory(1, 2 * GB, total_allocated=3 * GB, address=1).memory(55, 2 * GB, address=2, thread=AUTOGRAD)
    builder.memory(60, -2 * GB, address=1, thread=AUTOGRAD).memory(65, -2 * GB, address=2, thread=AUTOGRAD)
    found = Captured(builder, tmp_path).loader(batch=32).device(memory=5 * GB).finding(RoomForBatch())
    assert evidence(found, "memory per sample") == 4 * GB / 32
    assert evidence(found, "predicted largest batch") == 15 * 32 // 4


def test_a_busy_gpu_with_free_memory_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, totalGlobalMem=20 * GB).step(0, 0, 100).op("aten::mm", 0, 5)
    builder.launch(0, 2, kernel=(2, 100))
    outcome = Captured(builder, tmp_path).loader(batch=32).device(memory=3 * GB).clear(RoomForBatch())
    assert outcome.remark == "the GPU is busy"


def test_memory_that_is_half_full_is_clear(tmp_path: Path) -> None:
    outcome = Captured(_launch_bound(), tmp_path).loader(batch=32).device(memory=11 * GB).clear(RoomForBatch())
    assert outcome.value == pytest.approx(0.55)


def test_without_a_batch_size_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(Captured(_launch_bound(), tmp_path).loader().device(memory=GB).outcome(RoomForBatch()), Skipped)


@pytest.mark.parametrize(("held_gb", "found"), [(10.1, False), (10, True)])
def test_a_run_that_holds_up_to_half_of_the_memory_is_found(held_gb: float, tmp_path: Path, *, found: bool) -> None:
    captured = Captured(_launch_bound(), tmp_path).loader(batch=32).device(memory=held_gb * GB)
    assert captured.is_found(RoomForBatch()) is found


@pytest.mark.parametrize(("idle_us", "found"), [(9.9, False), (10, True)])
def test_idle_time_between_launches_counts_from_a_tenth_of_the_step(
    idle_us: float, tmp_path: Path, *, found: bool
) -> None:
    builder = TraceBuilder().device(0, totalGlobalMem=20 * GB).step(0, 0, 100).op("aten::mm", 0, idle_us)
    builder.launch(1, 5, kernel=(idle_us, 100))
    captured = Captured(builder, tmp_path).loader(batch=32).device(memory=3 * GB)
    assert captured.is_found(RoomForBatch()) is found
