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
    assert evidence(found, "GPU memory held") == 9.5 * GB
    assert evidence(found, "GPU memory used by tensors") == 7 * GB
    assert found.saving.high_ns == 0


def test_sampled_memory_takes_precedence_over_reserved_memory(tmp_path: Path) -> None:
    captured = Captured(_with_reserved(_holding(6 * GB), 7 * GB), tmp_path).device(memory=9.9 * GB)
    assert evidence(captured.finding(NearCapacity()), "GPU memory held") == 9.9 * GB


def test_memory_of_other_processes_does_not_count(tmp_path: Path) -> None:
    captured = Captured(_with_reserved(_holding(GB), 15 * GB // 10), tmp_path)
    outcome = captured.with_device(peak_memory_bytes=9.9 * GB, peak_foreign_memory_bytes=7.8 * GB).clear(NearCapacity())
    assert outcome.value == pytest.approx(0.21)
    assert outcome.remark == "other processes hold the rest: see HW003"


def test_a_run_that_fills_the_rest_of_a_shared_gpu_is_found(tmp_path: Path) -> None:
    captured = Captured(_with_reserved(_holding(8 * GB), 9 * GB), tmp_path)
    found = captured.with_device(peak_memory_bytes=9.9 * GB, peak_foreign_memory_bytes=0.5 * GB).finding(NearCapacity())
    assert evidence(found, "memory held by other processes") == 0.5 * GB


def test_unused_reserved_memory_is_not_needed(tmp_path: Path) -> None:
    outcome = clear(NearCapacity(), _with_reserved(_holding(GB), 95 * GB // 10), tmp_path)
    assert (outcome.value, outcome.remark) == (0.1, "PyTorch reserves more than it uses: see MEM005")


def test_other_held_memory_counts_beside_a_cache(tmp_path: Path) -> None:
    """PyTorch reserved 0.8 of 9.9 GB and used 0.4 GB: without this cache, more than nine tenths are still held."""
    captured = Captured(_with_reserved(_holding(4 * GB // 10), 8 * GB // 10), tmp_path).device(memory=9.9 * GB)
    assert evidence(captured.finding(NearCapacity()), "GPU memory held") == 9.9 * GB


def test_with_known_activations_the_finding_shows_the_freed_memory(tmp_path: Path) -> None:
    # 1 GB is held between steps, the forward pass adds 6 GB, and the backward pass 1 GB for a moment.
    builder = TraceBuilder().device(0, totalGlobalMem=10 * GB).step(0, 0, 100).step(1, 100, 200)
    builder.op("aten::mm", 0, 115).launch(2, 4, kernel=(5, 95)).launch(110, 112, kernel=(115, 175))
    builder.op("autograd::engine::evaluate_function: AddmmBackward0", 150, 180, thread=AUTOGRAD)
    builder.memory(110, 6 * GB, total_allocated=7 * GB, address=1).memory(155, GB, address=2, thread=AUTOGRAD)
    builder.memory(160, -6 * GB, address=1, thread=AUTOGRAD).memory(170, -GB, address=2, thread=AUTOGRAD)
    captured = Captured(builder, tmp_path).device(memory=9.5 * GB)
    found = captured.finding(NearCapacity())
    assert evidence(found, "activation memory") == 6 * GB
    assert evidence(found, "memory freed by checkpointing") == 3 * GB
    # Kernels take 90 us in one step and 60 us in the other.
    assert evidence(found, "extra step time for checkpointing") == pytest.approx(75_000 / 3)
    assert evidence(found, "memory freed by mixed precision") == 3 * GB
    # The temporary tensor of the backward pass grows with the batch, too.
    assert evidence(found, "memory freed by two half batches") == 3.5 * GB
    in_half = captured.with_settings(autocast_dtype="bfloat16").finding(NearCapacity())
    assert not [row for row in in_half.evidence if "mixed precision" in row.label]


def test_autotuning_is_a_caveat(tmp_path: Path) -> None:
    captured = Captured(_holding(GB), tmp_path).device(memory=9.9 * GB).with_settings(cudnn_benchmark=True)
    assert any("cuDNN autotuning is on" in caveat for caveat in captured.finding(NearCapacity()).caveats)


def test_memory_with_free_space_is_clear(tmp_path: Path) -> None:
    assert clear(NearCapacity(), _with_reserved(_holding(GB), 6 * GB), tmp_path).value == 0.6


def test_without_memory_events_or_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, totalGlobalMem=GB).step(0, 0, 100).op("aten::mm", 0, 5)
    assert "profile_memory=True" in skipped(NearCapacity(), builder.launch(0, 2, kernel=(0, 100)), tmp_path)


@pytest.mark.parametrize(("held", "found"), [(90, False), (91, True)])
def test_memory_is_nearly_full_above_nine_tenths(held: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(NearCapacity(), _with_reserved(_holding(7 * GB), held * GB // 10), tmp_path) is found


@pytest.mark.parametrize(("used", "found"), [(475, False), (476, True)])
def test_reserved_memory_is_a_cache_from_twice_the_used_memory(used: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(NearCapacity(), _with_reserved(_holding(used * GB // 100), 950 * GB // 100), tmp_path) is found
