from __future__ import annotations

from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.rules.near_capacity import NearCapacity

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
    captured = Captured(_with_reserved(_holding(GB), 2 * GB), tmp_path).device(memory=9.9 * GB)
    assert evidence(captured.finding(NearCapacity()), "device memory held") == 9.9 * GB


def test_memory_with_room_is_clear(tmp_path: Path) -> None:
    assert clear(NearCapacity(), _with_reserved(_holding(GB), 6 * GB), tmp_path).value == 0.6


def test_without_memory_events_or_samples_the_rule_cannot_look(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, totalGlobalMem=GB).step(0, 0, 100).op("aten::mm", 0, 5)
    assert "profile_memory=True" in skipped(NearCapacity(), builder.launch(0, 2, kernel=(0, 100)), tmp_path)
