from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.mem.mem001_near_capacity import NearCapacity

GB = 10**9


def _holding(allocated: int, *, capacity: int = 10 * GB) -> TraceBuilder:
    builder = TraceBuilder().device(0, totalGlobalMem=capacity).step(0, 0, 100).op("aten::mm", 0, 5)
    return builder.launch(0, 2, kernel=(0, 100)).memory(50, 1024, total_allocated=allocated)


def _with_reserved(builder: TraceBuilder, reserved: int) -> TraceBuilder:
    for event in builder.events:
        if event["name"] == "[memory]":
            event["args"]["Total Reserved"] = reserved
    return builder


def test_memory_reserved_near_the_capacity_is_found(tmp_path: Path) -> None:
    found = finding(NearCapacity(), _with_reserved(_holding(7 * GB), 95 * GB // 10), tmp_path)
    assert evidence(found, "device memory held") == 9.5 * GB
    assert evidence(found, "in use by tensors") == 7 * GB
    assert found.saving.high_ns == 0


def test_memory_sampled_from_the_driver_comes_before_what_torch_reserved(tmp_path: Path) -> None:
    captured = Captured(_with_reserved(_holding(6 * GB), 7 * GB), tmp_path).device(memory=9.9 * GB)
    assert evidence(captured.finding(NearCapacity()), "device memory held") == 9.9 * GB


def test_memory_of_other_processes_is_no_matter_of_this_run(tmp_path: Path) -> None:
    captured = Captured(_with_reserved(_holding(GB), 15 * GB // 10), tmp_path)
    outcome = captured.with_device(peak_memory_bytes=9.9 * GB, peak_foreign_memory_bytes=7.8 * GB).clear(NearCapacity())
    assert outcome.value == pytest.approx(0.21)
    assert outcome.remark == "other processes hold the rest: see HW003"


def test_a_run_that_fills_what_others_leave_by_itself_is_found(tmp_path: Path) -> None:
    captured = Captured(_with_reserved(_holding(8 * GB), 9 * GB), tmp_path)
    found = captured.with_device(peak_memory_bytes=9.9 * GB, peak_foreign_memory_bytes=0.5 * GB).finding(NearCapacity())
    assert evidence(found, "of it by other processes") == 0.5 * GB


def test_what_torch_keeps_and_does_not_use_is_no_need_for_memory(tmp_path: Path) -> None:
    outcome = clear(NearCapacity(), _with_reserved(_holding(GB), 95 * GB // 10), tmp_path)
    assert (outcome.value, outcome.remark) == (0.1, "torch keeps more than it uses: see MEM005")


def test_a_cache_does_not_excuse_what_is_held_beside_it(tmp_path: Path) -> None:
    """Of 9.9 GB torch reserved 0.8 and used 0.4: half a gigabyte less is still more than nine tenths."""
    captured = Captured(_with_reserved(_holding(4 * GB // 10), 8 * GB // 10), tmp_path).device(memory=9.9 * GB)
    assert evidence(captured.finding(NearCapacity()), "device memory held") == 9.9 * GB


def test_what_would_be_free_is_told_where_activations_are_known(tmp_path: Path) -> None:
    # 1 GB outlives the step, the forward pass adds 6 GB.
    builder = TraceBuilder().device(0, totalGlobalMem=10 * GB).step(0, 0, 100).step(1, 100, 200)
    builder.op("aten::mm", 0, 115).launch(2, 4, kernel=(5, 95)).launch(110, 112, kernel=(115, 175))
    builder.op("autograd::engine::evaluate_function: AddmmBackward0", 150, 180, thread=AUTOGRAD)
    for at, held in ((90, 1), (140, 7), (155, 8), (195, 1)):
        builder.memory(at, 1, total_allocated=held * GB)
    captured = Captured(builder, tmp_path).device(memory=9.5 * GB)
    found = captured.finding(NearCapacity())
    assert evidence(found, "of it activations") == 6 * GB
    assert evidence(found, "freed where half") == 3 * GB
    # Kernels take 90 us of one step and 60 us of the other.
    assert evidence(found, "for a step that is longer") == pytest.approx(75_000 / 3)
    assert evidence(found, "freed by mixed precision") == 3 * GB
    assert evidence(found, "freed by two half batches") == 3 * GB
    in_half = captured.with_settings(autocast_dtype="bfloat16").finding(NearCapacity())
    assert not [row for row in in_half.evidence if "mixed precision" in row.label]


def test_what_autotuning_takes_is_left_to_a_second_run(tmp_path: Path) -> None:
    captured = Captured(_holding(GB), tmp_path).device(memory=9.9 * GB).with_settings(cudnn_benchmark=True)
    assert any("cuDNN autotuning is on" in caveat for caveat in captured.finding(NearCapacity()).caveats)


def test_memory_with_room_is_clear(tmp_path: Path) -> None:
    assert clear(NearCapacity(), _with_reserved(_holding(GB), 6 * GB), tmp_path).value == 0.6


def test_without_memory_events_or_samples_the_rule_cannot_look(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, totalGlobalMem=GB).step(0, 0, 100).op("aten::mm", 0, 5)
    assert "profile_memory=True" in skipped(NearCapacity(), builder.launch(0, 2, kernel=(0, 100)), tmp_path)


@pytest.mark.parametrize(("held", "found"), [(90, False), (91, True)])
def test_memory_is_nearly_full_beyond_nine_tenths(held: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(NearCapacity(), _with_reserved(_holding(7 * GB), held * GB // 10), tmp_path) is found


@pytest.mark.parametrize(("used", "found"), [(475, False), (476, True)])
def test_what_is_reserved_is_a_cache_from_twice_what_is_used_on(used: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(NearCapacity(), _with_reserved(_holding(used * GB // 100), 950 * GB // 100), tmp_path) is found
