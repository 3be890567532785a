from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.dist.test_dist005_straggler import made, report_of
from tests.rules.judging import skipped
from traceadvisor.model.findings import Clear
from traceadvisor.model.report import FoundFigures, OutcomeRow
from traceadvisor.rules.dist.dist015_ranks_in_turns import RanksInTurns


def _row(folder: Path, *ranks: TraceBuilder) -> OutcomeRow:
    (row,) = [row for row in report_of(folder, *ranks).outcomes if row.rule_id == "DIST015"]
    return row


def test_waiting_of_ranks_that_take_turns_is_found(tmp_path: Path) -> None:
    """Each of two ranks waits 30 us in every second step."""
    report = report_of(tmp_path, made(0, [50, 80] * 2), made(1, [80, 50] * 2))
    (found,) = [row.finding for row in report.findings if row.finding.rule.id == "DIST015"]
    assert found.saving.high_ns == 15_000
    assert {one.label: one.value for one in found.evidence}["share of the waiting that it causes"] == 0.5


def test_one_late_rank_is_left_to_the_rule_that_names_it(tmp_path: Path) -> None:
    outcome = _row(tmp_path, made(0, [50] * 4), made(1, [80] * 4)).outcome
    assert isinstance(outcome, Clear)
    assert (outcome.value, outcome.remark) == (1.0, "one rank is the cause")


@pytest.mark.parametrize(("late", "found"), [(69, False), (71, True)])
def test_waiting_counts_from_ten_percent_of_the_step(late: int, tmp_path: Path, *, found: bool) -> None:
    outcome = _row(tmp_path, made(0, [50, late] * 2), made(1, [late, 50] * 2)).outcome
    assert isinstance(outcome, FoundFigures) is found


def test_one_rank_alone_cannot_be_compared(tmp_path: Path) -> None:
    assert "several ranks" in skipped(RanksInTurns(), made(0, [50] * 4), tmp_path)


def test_ranks_with_other_collectives_cannot_be_compared(tmp_path: Path) -> None:
    other = made(1, [50] * 4).collective(20, 21, kernel=(40, 45))
    for at in (100, 200, 300):
        other.collective(at + 20, at + 21, kernel=(at + 40, at + 45))
    assert "No step has matching collectives" in str(_row(tmp_path, made(0, [50] * 4), other).outcome)
