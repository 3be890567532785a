from __future__ import annotations

from dataclasses import replace

from tests.build_report import one_recording, three_recordings
from traceadvisor.model.findings import Input, RuleMeta, RuleOutcome, Skipped
from traceadvisor.model.report import OutcomeRow, Report, UsedSettings
from traceadvisor.rendering.outcome_view import outcomes_view

NO_DEVICE, NO_STEPS = Skipped("No kernels were recorded."), Skipped("No step was recorded.")


def _row(rule: str, outcome: RuleOutcome, *recordings: str) -> OutcomeRow:
    return OutcomeRow(RuleMeta(rule, rule.lower(), rule, frozenset({Input.STEPS})), recordings, outcome)


def _skipped(report: Report, *rows: OutcomeRow, providers: dict[str, str] | None = None) -> list[tuple[str, ...]]:
    settings = UsedSettings(providers=providers or {})
    table = outcomes_view(replace(report, outcomes=rows, settings=settings)).skipped
    assert table is not None
    return [tuple(cell.text for cell in row) for row in table.rows]


def test_checks_that_lack_the_same_stand_in_one_row() -> None:
    report = one_recording()
    id_ = report.recordings[0].id
    rows = (_row("GPU001", NO_DEVICE, id_), _row("MEM001", NO_STEPS, id_), _row("GPU002", NO_DEVICE, id_))
    assert _skipped(report, *rows) == [
        ("GPU001 gpu001, GPU002 gpu002", "No kernels were recorded."),
        ("MEM001 mem001", "No step was recorded."),
    ]


def test_checks_that_lack_it_in_different_recordings_do_not() -> None:
    report = three_recordings()
    first, second, third = (recording.id for recording in report.recordings)
    everywhere = [_row("GPU001", NO_DEVICE, id_) for id_ in (first, second, third)]
    assert _skipped(report, *everywhere, _row("GPU002", NO_DEVICE, second)) == [
        ("GPU001 gpu001", "all", "No kernels were recorded."),
        ("GPU002 gpu002", second, "No kernels were recorded."),
    ]


def test_a_rule_of_others_is_named_with_its_distribution() -> None:
    report = one_recording()
    row = _row("ACME001", NO_DEVICE, report.recordings[0].id)
    ((named, _),) = _skipped(report, row, providers={"ACME001": "acme-rules 1.0"})
    assert named == "ACME001 acme001 (acme-rules 1.0)"
