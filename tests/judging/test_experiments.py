import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build_report import one_recording
from tests.rendering.formatted import comment as markdown
from tests.rendering.formatted import render as page
from tests.rendering.formatted import summary
from traceadvisor.errors import InputError
from traceadvisor.judging.experiments import with_experiments
from traceadvisor.model.experiment import (
    FILE,
    AxisResult,
    CurvePoint,
    ExperimentResult,
    LedgerRow,
    MeasuredArm,
    MeasuredRatio,
    Section,
)
from traceadvisor.model.report import Report
from traceadvisor.results.experiment_json import read_experiment, render
from traceadvisor.results.report_json import read as read_report
from traceadvisor.results.report_json import render as report_json

START_NS = 1_700_000_000_123_456_789

RATIO = MeasuredRatio(
    ratio=0.59, low=0.53, high=0.65, null_low=0.9, null_high=1.1, smallest_visible=0.1, rounds=6, verdict="faster"
)


def judged(start_ns: int | None = START_NS) -> Report:
    report = one_recording()
    wall_ns = None if start_ns is None else (start_ns, start_ns + 10**9)
    return replace(report, recordings=tuple(replace(one, recorded_wall_ns=wall_ns) for one in report.recordings))


def experiment(report: Report, measured: MeasuredRatio = RATIO, start_ns: int | None = START_NS) -> ExperimentResult:
    """What `try` writes for the first finding of a report, with an axis."""
    finding = report.findings[0].finding
    arm = MeasuredArm(name=finding.rule.id, settings={"num_workers": 4}, measured=measured, samples_per_s=20.0)
    points = tuple(CurvePoint(value=value, samples_per_s=10.0 * value) for value in (1, 2))
    axis = AxisResult(
        name="num_workers", own=1, knee=2, knee_low=2, knee_high=2, best=2, is_faster=True,
        loop=points, model=points[1:],
        loader=points, out_of_memory_at=None, memory_bytes=None, good_memory_at=None,
    )  # fmt: skip
    row = LedgerRow(
        fix=finding.rule.id, title=finding.rule.title, settings={"num_workers": 4}, predicted_low=0.5, predicted=0.6,
        predicted_high=0.7, measured=measured, change=finding.fix.change,
    )  # fmt: skip
    section = Section(
        name="num_workers",
        base={},
        base_samples_per_s=10.0,
        base_step_ns=1e8,
        base_peak_bytes=None,
        arms=(arm,),
        axis=axis,
    )
    return ExperimentResult(
        tool_version="0.1.0", kind="try", command=("train.py",), device="cpu", device_name=None, torch=None, cores=2,
        own_settings={}, optimizer=None, seconds=60.0, steps=100, processes=1, sections=(section,), ledger=(row,),
        recommended={}, recommended_ratio=None, lines=(), unavailable={}, not_applicable={}, left_out=(), notes=(),
        problem=None, scratch=None, changed_files=(), recorded_start_ns=start_ns,
    )  # fmt: skip


def _written(folder: Path, result: ExperimentResult) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(render(result))
    return folder


def test_each_format_shows_what_was_measured_for_a_finding(tmp_path: Path) -> None:
    report = with_experiments(judged(), [_written(tmp_path / "runs" / "one", experiment(judged()))])
    words = "step 0.59 of before (0.53 to 0.65), faster, shown"
    html = page(report).decode()
    assert f"Measured</a>: {words}, with num_workers=4" in html
    assert html.count('id="measured-1"') == 1
    assert html.index("Measured by try</a>: ") < html.index('id="finding-1"')
    assert "Samples per second with each setting" in html
    assert f"Measured: {words}" in markdown(report).decode()
    assert any(words in line.text for line in summary(report))
    assert b'"ratio":0.59' in report_json(report)


def test_read_back_a_report_still_has_its_experiments(tmp_path: Path) -> None:
    report = with_experiments(judged(), [_written(tmp_path / "run", experiment(judged()))])
    path = tmp_path / "report.json"
    path.write_bytes(report_json(report))
    again = read_report(path)
    assert again.findings[0].measured == report.findings[0].measured
    assert report_json(again) == path.read_bytes()


def test_an_experiment_beside_a_run_is_shown_if_it_is_about_that_run(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "my-run"
    run.mkdir(parents=True)
    _written(tmp_path / "runs" / "my-run-try", experiment(judged()))
    _written(tmp_path / "runs" / "other-try", experiment(judged(), start_ns=START_NS + 10**9))
    report = with_experiments(judged(), [run])
    assert len(report.experiments) == 1
    assert report.findings[0].measured is not None
    assert report.findings[1].measured is None


def test_an_experiment_outside_of_the_given_folders_is_not_read(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "my-run"
    run.mkdir(parents=True)
    beside = _written(tmp_path / "runs" / "my-run-try", experiment(judged()))
    (run / FILE).symlink_to(beside / FILE)
    assert not with_experiments(judged(), [run], [run]).experiments
    assert with_experiments(judged(), [run], [run.parent]).experiments


def test_an_experiment_of_unknown_origin_counts_only_where_it_was_given(tmp_path: Path) -> None:
    run, other = tmp_path / "my-run", _written(tmp_path / "other", experiment(judged(), start_ns=None))
    run.mkdir()
    assert not with_experiments(judged(), [run]).experiments
    assert with_experiments(judged(), [run, other / FILE]).experiments


def test_what_was_measured_for_one_run_is_not_shown_for_another(tmp_path: Path) -> None:
    report = judged()
    (one,), (row, *_) = report.recordings, report.findings
    later = replace(one, id="later", run="later", recorded_wall_ns=(START_NS + 10**9, START_NS + 2 * 10**9))
    both = replace(
        report, recordings=(one, later), findings=(row, replace(row, recording_ids=("later",), by_recording=()))
    )
    for start_ns, shown in ((START_NS, [True, False]), (START_NS + 10**9, [False, True]), (None, [False, False])):
        folder = _written(tmp_path / str(start_ns) / "one", experiment(report, start_ns=start_ns))
        found = with_experiments(both, [folder])
        assert len(found.experiments) == 1
        assert [each.measured is not None for each in found.findings] == shown


def test_experiments_about_other_runs_leave_room_for_those_about_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceadvisor.judging.experiments.MOST_FOUND", 1)
    run = _written(tmp_path / "runs" / "run", experiment(judged()))
    _written(tmp_path / "runs" / "newer", experiment(judged(), start_ns=START_NS + 10**9))
    assert with_experiments(judged(), [run]).findings[0].measured is not None


def test_too_few_rounds_are_not_shown_beside_a_finding(tmp_path: Path) -> None:
    folder = _written(tmp_path / "runs" / "one", experiment(judged(), replace(RATIO, rounds=4)))
    assert with_experiments(judged(), [folder]).findings[0].measured is None


def test_another_proposal_of_the_same_rule_was_not_measured(tmp_path: Path) -> None:
    result = experiment(judged())
    other = replace(result, ledger=(replace(result.ledger[0], change="DataLoader(dataset, num_workers=9)"),))
    assert with_experiments(judged(), [_written(tmp_path / "runs" / "one", other)]).findings[0].measured is None


@pytest.mark.parametrize("content", [b"{", b'{"schema": "traceadvisor.experiment/9"}', b"[]"])
def test_a_damaged_experiment_is_a_note_where_it_was_given_and_ignored_beside(tmp_path: Path, content: bytes) -> None:
    run, beside = tmp_path / "runs" / "run", tmp_path / "runs" / "beside"
    for folder in (run, beside):
        folder.mkdir(parents=True)
    (beside / FILE).write_bytes(content)
    assert not with_experiments(judged(), [run]).health_notes
    (note,) = with_experiments(judged(), [beside]).health_notes
    assert FILE in note.note.message


def test_a_rate_of_nothing_is_refused(tmp_path: Path) -> None:
    folder = _written(tmp_path / "runs" / "one", experiment(judged(), replace(RATIO, ratio=0.0)))
    (note,) = with_experiments(judged(), [folder]).health_notes
    assert "not positive" in note.note.message


@pytest.mark.parametrize("missing", ["knee", "knee_low", "knee_high"])
def test_the_result_of_an_axis_is_known_with_both_its_ends_or_not_at_all(tmp_path: Path, missing: str) -> None:
    document = json.loads(render(experiment(one_recording())))
    document["sections"][0]["axis"][missing] = None
    (tmp_path / FILE).write_text(json.dumps(document))
    with pytest.raises(InputError, match="a knee and its two ends are known together"):
        read_experiment(tmp_path / FILE)


SLOWER = replace(RATIO, ratio=1.2, low=1.1, high=1.3, verdict="slower")


def test_a_fix_that_was_measured_as_slower_comes_after_the_others(tmp_path: Path) -> None:
    before = judged()
    report = with_experiments(before, [_written(tmp_path / "run", experiment(before, SLOWER))])
    first, *others = before.findings
    assert report.findings[-1].finding.rule == first.finding.rule
    assert [row.finding.rule for row in report.findings[:-1]] == [row.finding.rule for row in others]
    assert report.findings[0].further_saving == report.findings[0].finding.saving
    html = page(report).decode()
    assert "Behind findings whose fix may save time: the fix was measured as slower: the step takes 120%" in html
    assert first.finding.rule.title not in summary(report)[0].text


def test_a_fix_that_makes_no_difference_comes_last_if_more_was_expected(tmp_path: Path) -> None:
    same = replace(RATIO, ratio=1.0, low=0.98, high=1.02, verdict="no difference")
    report = with_experiments(judged(), [_written(tmp_path / "run", experiment(judged(), same))])
    assert report.findings[-1].is_refuted


def test_a_slower_fix_keeps_its_place_if_the_step_is_not_the_recorded_one(tmp_path: Path) -> None:
    other = replace(experiment(judged(), SLOWER), recorded_step_ns=3e8)
    report = with_experiments(judged(), [_written(tmp_path / "run", other)])
    assert report.findings[0].measured
    assert not any(row.is_refuted for row in report.findings)


def test_the_headline_says_what_was_measured_of_the_first_fix(tmp_path: Path) -> None:
    report = with_experiments(judged(), [_written(tmp_path / "run", experiment(judged()))])
    assert "; measured: the step takes 59% (53% to 65%) of before." in page(report).decode()
