from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.dist.dist004_poor_overlap import PoorOverlap


def _step(compute_until: float, *, exchange: tuple[float, float]) -> TraceBuilder:
    """A step whose window ends at 101 us: a kernel from 1 on, an all-reduce beside or behind it."""
    builder = TraceBuilder().step(0, 0, 100).distributed(0, 2)
    return builder.launch(0, 1, kernel=(1, compute_until)).collective(2, 3, kernel=exchange)


def test_an_all_reduce_at_the_end_of_the_compute_is_found(tmp_path: Path) -> None:
    found = finding(PoorOverlap(), _step(61, exchange=(51, 101)), tmp_path)
    assert evidence(found, "share of communication overlapped") == pytest.approx(0.2)
    assert found.claims.total_ns == 40_000


def test_a_mostly_overlapped_all_reduce_is_clear_at_any_cost(tmp_path: Path) -> None:
    assert clear(PoorOverlap(), _step(81, exchange=(1, 101)), tmp_path).value == 0.8


def test_a_short_all_reduce_after_the_compute_is_clear(tmp_path: Path) -> None:
    outcome = clear(PoorOverlap(), _step(97, exchange=(97, 101)), tmp_path)
    assert outcome.label == "exposed communication"
    assert outcome.value == pytest.approx(4 / 101)


def test_a_process_without_collectives_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(1, 90))
    assert "No collectives" in skipped(PoorOverlap(), builder, tmp_path)


@pytest.mark.parametrize(("compute_until", "found"), [(71, False), (70.9, True)])
def test_overlap_is_poor_below_seven_tenths(compute_until: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(PoorOverlap(), _step(compute_until, exchange=(1, 101)), tmp_path) is found


@pytest.mark.parametrize(("compute_until", "found"), [(96, False), (95.9, True)])
def test_exposed_communication_counts_from_five_percent_of_the_step(
    compute_until: float, tmp_path: Path, *, found: bool
) -> None:
    # 5 of 101 us, and 5.1.
    assert is_found(PoorOverlap(), _step(compute_until, exchange=(compute_until, 101)), tmp_path) is found
