from dataclasses import replace
from pathlib import Path

import pytest

from tests.build_report import hostile, nothing_readable, one_recording, three_recordings
from tests.rendering.alerts.alerting import located, many, of_repository
from tests.rendering.captures import captured_ranks
from traceadvisor.model.findings import Location, Severity
from traceadvisor.model.report import RecordedFinding, Report, Source, SourceKind
from traceadvisor.rendering.alerts.alert import MOST_ALERTS, Alert, alerts_of
from traceadvisor.rendering.alerts.source_tree import SourceTree

NO_TREE = SourceTree(None)


def only(report: Report, tree: SourceTree = NO_TREE) -> Alert:
    (alert,) = alerts_of(report, tree)
    return alert


def test_an_alert_is_at_the_first_place_of_its_finding() -> None:
    alert = only(located(Location("train.py", 41, "train"), Location("train.py", 7, "main")))
    assert alert.place == Location("train.py", 41, "train")
    assert alert.related == (Location("train.py", 7, "main"),)
    assert alert.message.startswith("Saves about 51.0 ms per step (28.7%). Fix: ")


def test_the_place_is_relative_to_the_repository_of_the_run() -> None:
    assert only(of_repository(Location("/repo/lib/data.py", 3))).place == Location("lib/data.py", 3)
    assert only(of_repository(Location("data.py", 3))).place == Location("src/data.py", 3)


def test_a_finding_without_a_place_is_at_its_script_else_at_the_input() -> None:
    assert only(of_repository()).place == Location("src/train.py", 1)
    assert only(located()).place == Location("log/resnet50", 1)
    report = replace(located(), source=Source((Path("/scratch/job 17/log"),), SourceKind.TENSORBOARD))
    assert only(report).place == Location("log", 1)
    assert only(replace(report, source=Source((), SourceKind.TENSORBOARD))).place == Location("recording", 1)


def test_the_fingerprint_of_a_finding_without_a_place_does_not_depend_on_names_of_recordings() -> None:
    report = located()
    (recording,), (row,) = report.recordings, report.findings
    later = replace(
        report,
        recordings=(replace(recording, id="later", path=Path("log/resnet50/later.pt.trace.json")),),
        findings=(replace(row, recording_ids=("later",)),),
    )
    assert only(later).fingerprint == only(report).fingerprint


def _tree(folder: Path, code: str) -> SourceTree:
    folder.mkdir()
    (folder / "train.py").write_text(code)
    return SourceTree(folder)


def test_the_fingerprint_stays_when_the_line_moves_and_changes_with_its_code(tmp_path: Path) -> None:
    before = only(located(Location("train.py", 1, "train")), _tree(tmp_path / "before", "loss.item()\n"))
    moved = only(located(Location("train.py", 3, "train")), _tree(tmp_path / "moved", "\n\n  loss.item()\n"))
    changed = only(located(Location("train.py", 1, "train")), _tree(tmp_path / "changed", "print(loss)\n"))
    assert before.fingerprint == moved.fingerprint != changed.fingerprint
    assert before.place_fingerprint == moved.place_fingerprint == changed.place_fingerprint


def test_the_fingerprint_differs_by_rule_file_and_function() -> None:
    others = (Location("train.py", 1, "g"), Location("other.py", 1, "f"))
    report = located(Location("train.py", 1, "f"))
    finding = report.findings[0].finding
    other_rule = replace(finding, rule=replace(finding.rule, id="DATA009"))
    reports = (
        report,
        *map(located, others),
        replace(report, findings=(replace(report.findings[0], finding=other_rule),)),
    )
    assert len({only(each).place_fingerprint for each in reports}) == 4


def test_fingerprints_of_a_report_are_unique() -> None:
    alerts = alerts_of(many(5, Severity.LOW), NO_TREE)
    assert len({alert.place_fingerprint for alert in alerts}) == 1
    assert len({alert.fingerprint for alert in alerts}) == 5


def test_recordings_with_the_same_place_share_an_alert() -> None:
    report = one_recording()
    row, one = report.findings[0], report.recordings[0]
    names = ("a", "b", "c")
    files = {"a": "train.py", "b": "train.py", "c": "other.py"}
    cases = tuple(
        RecordedFinding(
            replace(row.finding, locations=(Location(files[name], 1, "f"),)), (name,), row.severity, row.saving_share
        )
        for name in names
    )
    report = replace(
        report,
        recordings=tuple(replace(one, id=name) for name in names),
        findings=(replace(row, recording_ids=names, by_recording=cases),),
    )
    first, second = alerts_of(report, NO_TREE)
    assert first.message.endswith("Recorded in a and 1 more recording.")
    assert second.message.endswith("Recorded in c.")


@pytest.mark.parametrize("build", [three_recordings, captured_ranks, nothing_readable])
def test_an_alert_of_a_hostile_report_is_one_line_with_a_relative_path(build: object) -> None:
    assert callable(build)
    for alert in alerts_of(hostile(build()), NO_TREE):
        assert alert.message.isprintable()
        assert "ghp_" not in alert.text
        assert not alert.place.file.startswith(("/", "~"))


def test_a_report_with_very_many_findings_gives_the_first_ones() -> None:
    assert len(alerts_of(many(MOST_ALERTS + 5, Severity.LOW), NO_TREE)) == MOST_ALERTS
