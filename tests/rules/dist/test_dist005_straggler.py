from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import skipped
from traceadvisor import load
from traceadvisor.model.findings import Clear, Found
from traceadvisor.model.report import OutcomeRow, Report
from traceadvisor.rules.dist.dist005_straggler import Straggler


def _rank(number: int, arrivals: list[int], *, world_size: int = 2) -> TraceBuilder:
    """Steps of 100 us: a kernel until the rank arrives at the all-reduce, which ends at 100 on every rank."""
    builder = TraceBuilder().distributed(number, world_size).base_time(1_700_000_000_000_000_000)
    for step, arrival in enumerate(arrivals):
        start = 100 * step
        builder.step(step, start, start + 99).launch(start, start + 1, kernel=(start + 1, start + arrival))
        builder.collective(start + 2, start + 3, kernel=(start + arrival, start + 100))
    return builder


def _report(folder: Path, *ranks: TraceBuilder) -> Report:
    for number, builder in enumerate(ranks):
        builder.write(folder / f"host_{number}.1700000000000.pt.trace.json")
    return load(folder)


def _row(report: Report) -> OutcomeRow:
    rows = [row for row in report.outcomes if row.rule.id == "DIST005"]
    assert len(rows) == 1, rows
    return rows[0]


def test_the_late_rank_is_named_with_its_extra_time(tmp_path: Path) -> None:
    report = _report(tmp_path, _rank(0, [50] * 4), _rank(1, [80] * 4))
    row = _row(report)
    assert isinstance(row.outcome, Found)
    evidence = {one.label: one.value for one in row.outcome.finding.evidence}
    assert evidence["late rank"] == 1
    assert evidence["mean wait of the other ranks"] == 30_000
    assert evidence["extra time on this rank: kernels"] == pytest.approx(30_000)
    assert row.outcome.finding.saving.high_ns == 30_000


def test_the_finding_belongs_to_all_ranks(tmp_path: Path) -> None:
    report = _report(tmp_path, _rank(0, [50] * 4), _rank(1, [80] * 4))
    found = [row for row in report.findings if row.finding.rule.id == "DIST005"]
    assert [row.recording_ids for row in found] == [tuple(one.id for one in report.recordings)]


def test_even_ranks_are_clear(tmp_path: Path) -> None:
    outcome = _row(_report(tmp_path, _rank(0, [50] * 4), _rank(1, [51] * 4))).outcome
    assert isinstance(outcome, Clear)
    assert outcome.value < 0.05


def test_ranks_that_take_turns_are_clear(tmp_path: Path) -> None:
    outcome = _row(_report(tmp_path, _rank(0, [50, 80] * 2), _rank(1, [80, 50] * 2))).outcome
    assert isinstance(outcome, Clear)
    assert (outcome.value, outcome.remark) == (0.5, "ranks take turns")


def test_one_rank_alone_cannot_be_compared(tmp_path: Path) -> None:
    assert "several ranks" in skipped(Straggler(), _rank(0, [50] * 4), tmp_path)


@pytest.mark.parametrize(("arrival", "found"), [(54, False), (56, True)])
def test_waiting_counts_from_five_percent_of_the_step(arrival: int, tmp_path: Path, *, found: bool) -> None:
    outcome = _row(_report(tmp_path, _rank(0, [50] * 4), _rank(1, [arrival] * 4))).outcome
    assert isinstance(outcome, Found) is found


def test_a_rank_is_late_if_it_causes_60_percent_of_the_waiting(tmp_path: Path) -> None:
    outcome = _row(_report(tmp_path, _rank(0, [50, 50, 50, 80, 80]), _rank(1, [80, 80, 80, 50, 50]))).outcome
    assert isinstance(outcome, Found)


def test_at_most_three_causes_are_shown(tmp_path: Path) -> None:
    late = TraceBuilder().distributed(1, 2).base_time(1_700_000_000_000_000_000)
    for step in range(4):
        at = 100 * step
        late.step(step, at, at + 99).loader(at, at + 12).copy(at + 12, at + 13, on_device=(at + 14, at + 24))
        late.copy(at + 14, at + 15, on_device=(at + 24, at + 34), direction="d2d")
        late.launch(at + 16, at + 17, kernel=(at + 34, at + 95))
        late.collective(at + 18, at + 19, kernel=(at + 95, at + 100))
    outcome = _row(_report(tmp_path, _rank(0, [50] * 4), late)).outcome
    assert isinstance(outcome, Found)
    assert len([one for one in outcome.finding.evidence if one.label.startswith("extra time on this rank: ")]) == 3
