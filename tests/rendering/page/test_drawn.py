"""Which recordings have details of their own."""

from dataclasses import replace

import pytest

from tests.build_report import one_recording, three_recordings
from tests.rendering.formatted import in_report
from traceadvisor.model.breakdown import MeanBreakdown, Totals
from traceadvisor.model.report import Report
from traceadvisor.rendering.content.report.compared import comparison_table
from traceadvisor.rendering.content.report.drawn import MOST_DRAWN, anchors, drawn_recordings, not_drawn
from traceadvisor.rendering.document.blocks import Fold
from traceadvisor.rendering.headline import recording_of_verdict


def _many(of_first: int, of_second: int) -> Report:
    """Twenty recordings; the first two findings are about these."""
    report = one_recording()
    recordings = tuple(replace(report.recordings[0], id=f"run{number}") for number in range(20))
    first, second, *_ = report.findings
    findings = tuple(
        replace(row, recording_ids=(f"run{number}",)) for row, number in ((first, of_first), (second, of_second))
    )
    return replace(report, recordings=recordings, findings=findings)


def test_the_recordings_of_the_findings_have_details_in_the_order_of_the_report() -> None:
    assert [one.id for one in drawn_recordings(_many(17, 9))] == ["run0", "run1", "run9", "run17"]


def test_the_comparison_links_to_those_with_details_only() -> None:
    table = comparison_table(_many(17, 9))
    assert table is not None
    linked = {row[0].text: row[0].href for row in table.rows if row[0].href}
    assert linked == {f"{name}": f"#{anchor}" for name, anchor in anchors(_many(17, 9)).items()}
    assert linked["run17"] == "#recording-4"


def test_the_comparison_asks_each_recording_a_fixed_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    totals = MeanBreakdown.totals

    def counted(breakdown: MeanBreakdown) -> Totals:
        nonlocal asked
        asked += 1
        return totals.fget(breakdown)  # type: ignore[attr-defined,no-any-return]  # mypy takes it for its value

    monkeypatch.setattr(MeanBreakdown, "totals", property(counted))
    comparison_table(_many(17, 9))
    assert 20 <= asked <= 40


def test_a_sentence_names_those_with_details_and_how_to_get_others() -> None:
    sentence = not_drawn(_many(17, 9))
    assert sentence is not None
    assert f"Only {MOST_DRAWN} of 20 recordings" in sentence
    assert all(name in sentence for name in ("run0", "run1", "run9", "run17", "--run"))


def test_a_few_recordings_all_have_details() -> None:
    report = three_recordings()
    assert drawn_recordings(report) == report.recordings
    assert not_drawn(report) is None


def test_the_trace_of_the_diagnosed_recording_is_open_at_first() -> None:
    report = three_recordings()
    anchor = anchors(report)[recording_of_verdict(report).id]
    opened = [fold.anchor for fold in in_report(Fold, report) if fold.is_open]
    assert opened == [anchor, f"{anchor}-trace"]
