from pathlib import Path

import pytest

from tests.build import MAIN, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.mem.mem005_fragmentation import Fragmentation

GIB = 1 << 30


def _held(used_gib: float, reserved_gib: float) -> TraceBuilder:
    """Build a step on a GPU with 10 GiB."""
    builder = TraceBuilder().device(0, totalGlobalMem=10 * GIB).step(0, 0, 100).op("aten::mm", 0, 5)
    builder.launch(0, 2, kernel=(0, 100)).memory(50, 1, total_allocated=int(used_gib * GIB), thread=MAIN)
    builder.events[-1]["args"]["Total Reserved"] = int(reserved_gib * GIB)
    return builder


def test_much_more_reserved_than_used_memory_is_found(tmp_path: Path) -> None:
    found = finding(Fragmentation(), _held(3, 8), tmp_path)
    assert evidence(found, "reserved but unused") == 0.5
    assert found.fix.change == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def test_with_expandable_segments_the_fix_is_about_shapes(tmp_path: Path) -> None:
    captured = Captured(_held(3, 8), tmp_path).with_device(peak_memory_bytes=8 * GIB)
    captured.with_settings(environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    found = captured.finding(Fragmentation())
    assert found.fix.change is None
    assert "lengths" in found.fix.summary


def test_a_small_reserve_is_clear(tmp_path: Path) -> None:
    assert clear(Fragmentation(), _held(4, 6), tmp_path).value == 1.5


def test_a_reserve_with_a_small_share_of_the_gpu_memory_is_clear(tmp_path: Path) -> None:
    outcome = clear(Fragmentation(), _held(0.2, 0.7), tmp_path)
    assert outcome.label == "reserved but unused GPU memory"


def test_without_allocator_events_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(0, 100))
    assert "GPU memory was not recorded" in skipped(Fragmentation(), builder, tmp_path)


@pytest.mark.parametrize(
    ("used_gib", "reserved_gib", "found"),
    [(3, 5.99, False), (3, 6, True), (0.9, 1.89, False), (1, 2, True)],
)
def test_the_limits_are_twice_the_used_memory_and_a_tenth_of_the_gpu_memory(
    used_gib: float, reserved_gib: float, tmp_path: Path, *, found: bool
) -> None:
    assert is_found(Fragmentation(), _held(used_gib, reserved_gib), tmp_path) is found
