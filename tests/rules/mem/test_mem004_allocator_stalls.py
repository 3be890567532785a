from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Method
from traceadvisor.rules.mem.mem004_allocator_stalls import AllocatorStalls


def _steps(*, allocating: float, count: int = 5) -> TraceBuilder:
    """Steps of 100 us, each with a call for memory that long, then a launch and 38 us of kernel, waited for."""
    builder = TraceBuilder()
    for number in range(count):
        start = 100 * number
        builder.step(number, start, start + 100).op("aten::empty", start, start + 50)
        if allocating:
            builder.allocate(start, start + allocating)
        builder.launch(start + 52, start + 55, kernel=(start + 60, start + 98)).sync(start + 56, start + 99)
    return builder


def test_steps_that_ask_the_driver_for_memory_are_found(tmp_path: Path) -> None:
    found = finding(AllocatorStalls(), _steps(allocating=50), tmp_path)
    assert evidence(found, "such calls") == 1
    assert evidence(found, "device idle") == 50_000
    assert evidence(found, "inside them") == 50_000


def test_the_calls_are_what_is_saved(tmp_path: Path) -> None:
    saving = finding(AllocatorStalls(), _steps(allocating=50), tmp_path).saving
    assert saving.method is Method.REPLAY
    assert [saving.low_ns, saving.expected_ns, saving.high_ns] == pytest.approx([25_000, 45_000, 50_000])


def test_steps_that_live_on_the_cache_are_clear(tmp_path: Path) -> None:
    assert clear(AllocatorStalls(), _steps(allocating=0), tmp_path).value == 0


def test_a_step_or_two_may_be_those_that_fill_the_cache(tmp_path: Path) -> None:
    assert "fill the cache" in skipped(AllocatorStalls(), _steps(allocating=50, count=2), tmp_path)


def test_without_kernels_the_rule_cannot_look(tmp_path: Path) -> None:
    assert "No kernels" in skipped(AllocatorStalls(), TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 50), tmp_path)


@pytest.mark.parametrize(("calling_us", "found"), [(0.9, False), (1, True)])
def test_such_calls_count_from_one_percent_of_the_step(calling_us: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(AllocatorStalls(), _steps(allocating=calling_us), tmp_path) is found


def test_three_lines_are_named_at_most(tmp_path: Path) -> None:
    builder = _steps(allocating=0)
    for at in range(0, 500, 100):
        for line in range(4):
            begin = at + 12 * line
            builder.op("aten::empty", begin + 1, begin + 11, stack=(f"train.py({line}): train",))
            builder.allocate(begin + 2, begin + 10)
    found = finding(AllocatorStalls(), builder, tmp_path)
    assert [each.line for each in found.locations] == [0, 1, 2]
