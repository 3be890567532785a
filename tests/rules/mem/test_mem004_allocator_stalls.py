from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.mem.mem004_allocator_stalls import AllocatorStalls


def _steps(*, allocating: float, count: int = 5) -> TraceBuilder:
    """Build steps of 100 us with an allocation of that length, a launch, a kernel of 38 us and a wait for it."""
    builder = TraceBuilder()
    for start in builder.steps(count, 100):
        builder.op("aten::empty", start, start + 50)
        if allocating:
            builder.allocate(start, start + allocating)
        builder.launch(start + 52, start + 55, kernel=(start + 60, start + 98)).sync(start + 56, start + 99)
    return builder


def test_steps_that_allocate_through_the_driver_are_found(tmp_path: Path) -> None:
    found = finding(AllocatorStalls(), _steps(allocating=50), tmp_path)
    assert evidence(found, "calls that allocate or free memory") == 1
    assert evidence(found, "GPU idle time during memory allocation") == 50_000
    assert evidence(found, "CPU time in these calls") == 50_000


def test_the_saving_is_the_time_of_the_calls(tmp_path: Path) -> None:
    saving = finding(AllocatorStalls(), _steps(allocating=50), tmp_path).saving
    assert saving.method is Method.REPLAY
    assert [saving.low_ns, saving.expected_ns, saving.high_ns] == pytest.approx([25_000, 45_000, 50_000], rel=0.03)


def test_steps_that_use_only_the_cache_are_clear(tmp_path: Path) -> None:
    assert clear(AllocatorStalls(), _steps(allocating=0), tmp_path).value == 0


def test_with_two_steps_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "fill the cache" in skipped(AllocatorStalls(), _steps(allocating=50, count=2), tmp_path)


@pytest.mark.parametrize(("calling_us", "found"), [(0.9, False), (1, True)])
def test_allocation_calls_count_from_one_percent_of_the_step(calling_us: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(AllocatorStalls(), _steps(allocating=calling_us), tmp_path) is found


def test_at_most_three_lines_are_named(tmp_path: Path) -> None:
    builder = _steps(allocating=0)
    for at in range(0, 500, 100):
        for line in range(4):
            begin = at + 12 * line
            builder.op("aten::empty", begin + 1, begin + 11, stack=(f"train.py({line}): train",))
            builder.allocate(begin + 2, begin + 10)
    found = finding(AllocatorStalls(), builder, tmp_path)
    assert [each.line for each in found.locations] == [0, 1, 2]
