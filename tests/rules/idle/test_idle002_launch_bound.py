from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.rules.idle.idle002_launch_bound import LaunchBound


def _short_kernels(steps: int = 3) -> TraceBuilder:
    """Steps of ten operators of 10 us, each launching a kernel of 2 us."""
    builder = TraceBuilder()
    for number in range(steps):
        builder.step(number, 100 * number, 100 * number + 100)
    for start in range(0, 100 * steps, 10):
        builder.op("aten::add", start, start + 10).launch(start + 2, start + 7, kernel=(start + 8, start + 10))
    return builder


def test_kernels_shorter_than_their_launches_are_found(tmp_path: Path) -> None:
    found = finding(LaunchBound(), _short_kernels(), tmp_path)
    assert found.claims.total_ns == 3 * 80_000
    assert evidence(found, "kernels shorter than 10 µs") == 1.0
    assert evidence(found, "median kernel") == 2_000


def test_many_short_calls_call_for_fewer_launches(tmp_path: Path) -> None:
    found = finding(LaunchBound(), _short_kernels(), tmp_path)
    assert evidence(found, "of it inside single operators") == 0
    assert found.fix.change is not None


def test_one_long_call_is_told_from_many_short_ones(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number, start in enumerate((0, 5000, 10_000)):
        builder.step(number, start, start + 5000).op("aten::conv2d", start, start + 4000)
        builder.launch(start + 3900, start + 3990, kernel=(start + 3995, start + 5000))
    found = finding(LaunchBound(), builder, tmp_path)
    assert evidence(found, "of it inside single operators") == 1.0
    assert "long host calls" in found.fix.summary


def test_a_full_queue_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number, start in enumerate((0, 100, 200)):
        builder.step(number, start, start + 100).op("aten::mm", start, start + 6)
        builder.launch(start, start + 2, kernel=(start + 2, start + 50))
        builder.launch(start + 3, start + 5, kernel=(start + 50, start + 100))
    assert clear(LaunchBound(), builder, tmp_path).value < 0.05


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_of_one_or_two_steps_it_may_be_what_the_first_calls_of_a_run_cost(steps: int, tmp_path: Path) -> None:
    builder = _short_kernels(steps) if steps else _unmarked()
    assert "Fewer than 3 steps" in skipped(LaunchBound(), builder, tmp_path)


def _unmarked() -> TraceBuilder:
    """As above, all of it one window."""
    builder = _short_kernels()
    builder.events[:] = [event for event in builder.events if not event["name"].startswith("ProfilerStep#")]
    return builder


def test_without_launch_records_the_rule_cannot_look(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 6).kernel(10, 60)
    assert "No launch calls" in skipped(LaunchBound(), builder, tmp_path)
