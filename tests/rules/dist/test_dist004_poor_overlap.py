from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.rules.dist.dist004_poor_overlap import PoorOverlap


def _step(compute_until: int, *, exchange: tuple[int, int]) -> TraceBuilder:
    """A step whose window ends at 101 us: a kernel from 1 on, an all-reduce beside or behind it."""
    builder = TraceBuilder().step(0, 0, 100).distributed(0, 2)
    return builder.launch(0, 1, kernel=(1, compute_until)).collective(2, 3, kernel=exchange)


def test_an_exchange_that_waits_for_the_end_of_the_computation_is_found(tmp_path: Path) -> None:
    found = finding(PoorOverlap(), _step(61, exchange=(51, 101)), tmp_path)
    assert evidence(found, "share of the communication that runs beside") == pytest.approx(0.2)
    assert found.claims.total_ns == 40_000


def test_an_exchange_mostly_beside_computation_is_clear_whatever_it_costs(tmp_path: Path) -> None:
    assert clear(PoorOverlap(), _step(81, exchange=(1, 101)), tmp_path).value == 0.8


def test_a_short_exchange_behind_the_computation_is_clear(tmp_path: Path) -> None:
    outcome = clear(PoorOverlap(), _step(97, exchange=(97, 101)), tmp_path)
    assert outcome.label == "exposed communication"
    assert outcome.value == pytest.approx(4 / 101)


def test_a_process_that_exchanges_nothing_has_nothing_to_overlap(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).launch(0, 1, kernel=(1, 90))
    assert "No collectives" in skipped(PoorOverlap(), builder, tmp_path)
