from dataclasses import replace

import pytest

from tests.build_report import one_recording, three_recordings
from tests.rendering.formatted import every
from traceadvisor.model.findings import Clear, NotCounted, Silenced, Skipped, Unit
from traceadvisor.model.report import OutcomeRow, Report, RuleText, UsedSettings
from traceadvisor.rendering.content.report.outcomes import nothing_found, outcome_folds
from traceadvisor.rendering.document.table import Table

NO_DEVICE, NO_STEPS = Skipped("No kernels were recorded."), Skipped("No step was recorded.")


def _row(rule: str, outcome: Clear | Skipped, *recordings: str) -> OutcomeRow:
    return OutcomeRow(rule, recordings, outcome)


def _with(report: Report, *rows: OutcomeRow) -> Report:
    """The report with these outcomes, and the name of each rule."""
    rules = tuple(RuleText(id_, id_.lower(), id_, "") for id_ in dict.fromkeys(row.rule_id for row in rows))
    return replace(report, outcomes=rows, rules=rules)


def _tables(anchor: str, report: Report) -> list[Table]:
    (fold,) = (one for one in outcome_folds(report) if one.anchor == anchor)
    return list(every(Table, [fold]))


def _skipped(report: Report, *rows: OutcomeRow, providers: dict[str, str] | None = None) -> list[tuple[str, ...]]:
    settings = UsedSettings(providers=providers or {})
    (table,) = _tables("not-measured", replace(_with(report, *rows), settings=settings))
    return [tuple(cell.text for cell in row) for row in table.rows]


def test_checks_skipped_for_the_same_reason_share_a_row() -> None:
    report = one_recording()
    id_ = report.recordings[0].id
    rows = (_row("GPU001", NO_DEVICE, id_), _row("MEM001", NO_STEPS, id_), _row("GPU002", NO_DEVICE, id_))
    assert _skipped(report, *rows) == [
        ("GPU001 gpu001, GPU002 gpu002", "No kernels were recorded."),
        ("MEM001 mem001", "No step was recorded."),
    ]


def test_checks_skipped_in_different_recordings_have_their_own_rows() -> None:
    report = three_recordings()
    first, second, third = (recording.id for recording in report.recordings)
    everywhere = [_row("GPU001", NO_DEVICE, id_) for id_ in (first, second, third)]
    assert _skipped(report, *everywhere, _row("GPU002", NO_DEVICE, second)) == [
        ("GPU001 gpu001", "all", "No kernels were recorded."),
        ("GPU002 gpu002", second, "No kernels were recorded."),
    ]


def test_a_plugin_rule_is_named_with_its_distribution() -> None:
    report = one_recording()
    row = _row("ACME001", NO_DEVICE, report.recordings[0].id)
    ((named, _),) = _skipped(report, row, providers={"ACME001": "acme-rules 1.0"})
    assert named == "ACME001 acme001 (acme-rules 1.0)"


def _clear(report: Report, *rows: OutcomeRow) -> list[tuple[str, ...]]:
    (table,) = _tables("fine", _with(report, *rows))
    return [tuple(cell.text for cell in row) for row in table.rows]


def test_a_check_passed_in_several_recordings_has_one_row_with_a_range() -> None:
    report = three_recordings()
    first, second, third = (recording.id for recording in report.recordings)
    rows = [
        _row("DATA001", Clear("data wait", share, 0.05, Unit.SHARE, remark), id_)
        for id_, share, remark in ((first, 0.02, None), (second, 0.004, None), (third, 0.03, "workers are used"))
    ]
    assert _clear(report, *rows) == [
        ("DATA001 data001", f"{first}, {second}", "data wait", "0.4% to 2.0%", "at most 5.0%"),
        ("DATA001 data001", third, "data wait", "3.0%", "at most 5.0% (workers are used)"),
    ]


def test_equal_figures_make_no_range() -> None:
    report = three_recordings()
    rows = [_row("IDLE005", Clear("pauses", 0.0, 0.03, Unit.SHARE), one.id) for one in report.recordings]
    assert _clear(report, *rows) == [("IDLE005 idle005", "all", "pauses", "0%", "at most 3.0%")]


@pytest.mark.parametrize(
    ("clear", "words"),
    [
        (Clear("GPU busy", 0.765, 0.5, Unit.SHARE, at_least=True), "at least 50.0%"),
        (Clear("data wait", 0.2, 0.05, Unit.SHARE, "workers are used"), "workers are used"),
        (Clear("samples", 4, 8, Unit.COUNT, "the last batch is dropped", at_least=True), "the last batch is dropped"),
    ],
)
def test_a_passed_check_says_in_which_direction_it_passes(clear: Clear, words: str) -> None:
    report = one_recording()
    ((*_, passes_if),) = _clear(report, _row("IDLE009", clear, report.recordings[0].id))
    assert passes_if.startswith(words)


def test_checks_of_kernels_show_how_much_of_the_kernel_time_they_judged() -> None:
    report = one_recording()
    id_ = report.recordings[0].id
    judged = Clear("time in float32", 0.01, 0.05, Unit.SHARE, judged_share=0.62)
    rows = (_row("GPU001", judged, id_), _row("IDLE001", Clear("waits", 0.01, 0.05, Unit.SHARE), id_))
    assert _clear(report, *rows) == [
        ("GPU001 gpu001", "time in float32", "1.0%", "at most 5.0%", "62.0%"),
        ("IDLE001 idle001", "waits", "1.0%", "at most 5.0%", ""),
    ]


def test_of_several_recordings_the_smallest_judged_share_is_shown() -> None:
    report = three_recordings()
    rows = [
        _row("GPU001", Clear("time in float32", 0.01, 0.05, Unit.SHARE, judged_share=share), recording.id)
        for recording, share in zip(report.recordings, (1.0, 0.7, 0.9), strict=True)
    ]
    assert _clear(report, *rows) == [("GPU001 gpu001", "all", "time in float32", "1.0%", "at most 5.0%", "70.0%")]


@pytest.mark.parametrize(
    ("skipped", "sentence"),
    [
        (1, "No check found a problem."),
        (2, "1 check ran and found no problem; 2 do not apply, or lack input."),
    ],
)
def test_without_findings_the_report_says_if_most_checks_could_not_run(skipped: int, sentence: str) -> None:
    rows = [_row(f"DATA00{number + 2}", Skipped("no stacks"), "a") for number in range(skipped)]
    passed = _row("DATA001", Clear("data wait", 0.02, 0.05, Unit.SHARE), "a")
    assert nothing_found(replace(one_recording(), findings=(), outcomes=(passed, *rows))) == sentence


def test_the_rules_of_a_row_unfold_if_they_are_many() -> None:
    report = one_recording()
    rows = [_row(f"GPU00{number}", NO_DEVICE, report.recordings[0].id) for number in range(1, 7)]
    (table,) = _tables("not-measured", _with(report, *rows))
    ((rules, _),) = table.rows
    assert rules.text == "GPU001 gpu001, GPU002 gpu002, GPU003 gpu003, GPU004 gpu004 and 2 more"
    assert rules.more is not None
    assert len(rules.more.lines) == 6


def test_what_a_law_took_is_a_row_with_finding_figure_and_law() -> None:
    report = one_recording()
    taken = Silenced(
        "IDLE001", report.recordings[0].id, "Wait less", "A saving is at most the step", "saving", 2e8, 1e8
    )
    (table,) = _tables("silenced", replace(report, silenced=(taken,)))
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["IDLE001", "Wait less", "saving: 200 -> 100 ms", "A saving is at most the step"]
    ]


@pytest.mark.parametrize(
    ("left_out", "measured"),
    [
        ((), "data wait"),
        ((NotCounted.START_UP,), "data wait, without start-up"),
        ((NotCounted.START_UP, NotCounted.RANK_WAITS), "data wait, without start-up, waits for other ranks"),
    ],
)
def test_a_passed_check_says_what_its_figure_leaves_out(left_out: tuple[NotCounted, ...], measured: str) -> None:
    report = one_recording()
    row = _row("DATA001", Clear("data wait", 0.0, 0.05, Unit.SHARE, not_counted=left_out), report.recordings[0].id)
    (table,) = _tables("fine", _with(report, row))
    assert measured in [cell.text for cell in table.rows[0]]
