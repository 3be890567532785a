from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.dist.dist003_exposed_communication import ExposedCommunication


def _step(compute_until: float, *, exchange: tuple[float, float]) -> TraceBuilder:
    """A step whose window ends at 101 us: a kernel from 1 on, an all-reduce beside or behind it."""
    builder = TraceBuilder().step(0, 0, 100).distributed(0, 2)
    return builder.launch(0, 1, kernel=(1, compute_until)).collective(2, 3, kernel=exchange)


def test_an_all_reduce_after_the_compute_is_found(tmp_path: Path) -> None:
    found = finding(ExposedCommunication(), _step(61, exchange=(41, 101)), tmp_path)
    assert found.claims.total_ns == 40_000
    assert evidence(found, "exposed communication") == 40_000
    assert evidence(found, "total communication") == 60_000
    assert evidence(found, "ranks") == 2


def test_an_overlapped_all_reduce_is_clear(tmp_path: Path) -> None:
    assert clear(ExposedCommunication(), _step(96, exchange=(41, 101)), tmp_path).value == pytest.approx(5 / 101)


def test_a_process_without_collectives_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(1, 90))
    assert "No collectives" in skipped(ExposedCommunication(), builder, tmp_path)


@pytest.mark.parametrize(("compute_until", "found"), [(91, False), (90.9, True)])
def test_exposed_communication_counts_from_ten_percent_of_the_step(
    compute_until: float, tmp_path: Path, *, found: bool
) -> None:
    assert is_found(ExposedCommunication(), _step(compute_until, exchange=(41, 101)), tmp_path) is found
