from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.mem.mem002_room_for_batch import RoomForBatch

GB = 10**9


def _launch_bound() -> TraceBuilder:
    """Half of the step the device waits for launches; 1 GB outlives the step, 32 samples add 2 GB; 20 GB capacity."""
    builder = TraceBuilder().device(0, totalGlobalMem=20 * GB).step(0, 0, 100)
    for start in range(0, 100, 10):
        builder.op("aten::add", start, start + 10).launch(start + 1, start + 4, kernel=(start + 5, start + 10))
    return builder.memory(1, 1024, total_allocated=GB).memory(50, 1024, total_allocated=3 * GB)


def test_free_memory_with_a_device_that_waits_for_launches_is_found(tmp_path: Path) -> None:
    found = Captured(_launch_bound(), tmp_path).loader(batch=32).device(memory=3 * GB).finding(RoomForBatch())
    assert evidence(found, "memory for each sample") == pytest.approx(2 * GB / 32)


def test_the_largest_batch_is_foreseen_from_what_a_sample_takes(tmp_path: Path) -> None:
    # Four fifths of 20 GB less the 1 GB that outlives the step leave 15 GB for samples of 62.5 MB.
    found = Captured(_launch_bound(), tmp_path).loader(batch=32).device(memory=3 * GB).finding(RoomForBatch())
    assert evidence(found, "largest batch foreseen") == 240


def test_where_activations_are_known_they_are_foreseen_to_grow_alone(tmp_path: Path) -> None:
    # 1 GB outlives the step, 32 samples add 2 GB of activations and 2 GB beside; 16 GB may be held.
    builder = _launch_bound().step(1, 100, 200).op("aten::add", 110, 180).launch(111, 114, kernel=(115, 120))
    builder.op("autograd::engine::evaluate_function: MulBackward0", 150, 160).memory(99, 1024, total_allocated=GB)
    builder.memory(140, 1024, total_allocated=3 * GB).memory(155, 1024, total_allocated=5 * GB)
    found = Captured(builder, tmp_path).loader(batch=32).device(memory=5 * GB).finding(RoomForBatch())
    assert evidence(found, "memory for each sample") == 4 * GB / 32
    assert evidence(found, "largest batch foreseen") == 15 * 32 // 4
    assert evidence(found, "the same, if activations alone grow") == 13 * 32 // 2


def test_a_busy_device_is_clear_however_much_memory_is_free(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, totalGlobalMem=20 * GB).step(0, 0, 100).op("aten::mm", 0, 5)
    builder.launch(0, 2, kernel=(2, 100))
    outcome = Captured(builder, tmp_path).loader(batch=32).device(memory=3 * GB).clear(RoomForBatch())
    assert outcome.remark == "the device is busy as it is"


def test_memory_that_is_half_full_is_clear(tmp_path: Path) -> None:
    outcome = Captured(_launch_bound(), tmp_path).loader(batch=32).device(memory=11 * GB).clear(RoomForBatch())
    assert outcome.value == pytest.approx(0.55)


def test_without_a_batch_size_the_rule_cannot_look(tmp_path: Path) -> None:
    assert isinstance(Captured(_launch_bound(), tmp_path).loader().device(memory=GB).outcome(RoomForBatch()), Skipped)


@pytest.mark.parametrize(("held_gb", "found"), [(10.1, False), (10, True)])
def test_there_is_room_up_to_half_of_the_memory(held_gb: float, tmp_path: Path, *, found: bool) -> None:
    captured = Captured(_launch_bound(), tmp_path).loader(batch=32).device(memory=held_gb * GB)
    assert captured.is_found(RoomForBatch()) is found


@pytest.mark.parametrize(("idle_us", "found"), [(9.9, False), (10, True)])
def test_waiting_for_launches_counts_from_a_tenth_of_the_step(idle_us: float, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().device(0, totalGlobalMem=20 * GB).step(0, 0, 100).op("aten::mm", 0, idle_us)
    builder.launch(1, 5, kernel=(idle_us, 100))
    captured = Captured(builder, tmp_path).loader(batch=32).device(memory=3 * GB)
    assert captured.is_found(RoomForBatch()) is found
