from __future__ import annotations

from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.rules.launch_bound import LaunchBound


def _short_kernels() -> TraceBuilder:
    """Ten operators of 10 us, each launching a kernel of 2 us."""
    builder = TraceBuilder().step(0, 0, 100)
    for start in range(0, 100, 10):
        builder.op("aten::add", start, start + 10).launch(start + 2, start + 7, kernel=(start + 8, start + 10))
    return builder


def test_kernels_shorter_than_their_launches_are_found(tmp_path: Path) -> None:
    found = finding(LaunchBound(), _short_kernels(), tmp_path)
    assert found.claims.total_ns == 80_000
    assert evidence(found, "kernels shorter than 10 µs") == 1.0
    assert evidence(found, "median kernel") == 2_000


def test_many_short_calls_call_for_fewer_launches(tmp_path: Path) -> None:
    found = finding(LaunchBound(), _short_kernels(), tmp_path)
    assert evidence(found, "of it inside single operators") == 0
    assert found.fix.change is not None


def test_one_long_call_is_told_from_many_short_ones(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 5000).op("aten::conv2d", 0, 4000).launch(3900, 3990, kernel=(3995, 5000))
    found = finding(LaunchBound(), builder, tmp_path)
    assert evidence(found, "of it inside single operators") == 1.0
    assert "long host calls" in found.fix.summary


def test_a_full_queue_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 6)
    builder.launch(0, 2, kernel=(2, 50)).launch(3, 5, kernel=(50, 100))
    assert clear(LaunchBound(), builder, tmp_path).value < 0.05


def test_without_launch_records_the_rule_cannot_look(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 6).kernel(10, 60)
    assert "No launch calls" in skipped(LaunchBound(), builder, tmp_path)
