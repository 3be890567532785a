import pytest

from tests.shared import SHARED_TRACES
from traceadvisor.api import load


@pytest.mark.usefixtures("shared_traces")
def test_workers_come_before_a_refactoring_with_a_similar_saving() -> None:
    report = load(SHARED_TRACES / "formats/array-form-v100.pt.trace.json.gz")
    assert [row.finding.rule.id for row in report.findings[:2]] == ["DATA002", "IDLE002"]


@pytest.mark.usefixtures("shared_traces")
def test_three_recordings_of_one_script_have_one_row_per_rule() -> None:
    report = load(SHARED_TRACES / "tensorboard-logs")
    rules = [row.finding.rule.id for row in report.findings]
    assert len(set(rules)) == len(rules) <= 6
    loader = report.findings[0]
    assert loader.finding.rule.id == "DATA002"
    assert [one.rpartition("/")[2] for one in loader.recording_ids] == ["1623143089861", "1623143566756"]
    assert [round(case.finding.saving.expected_ns / 1e6, 1) for case in loader.by_recording] == [55.7, 29.5]


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/savings", "traceadvisor/judging")
@pytest.mark.usefixtures("shared_traces")
def test_the_simulated_savings_of_a_recording_sum_to_the_step_with_all_fixes() -> None:
    report = load(SHARED_TRACES / "tensorboard-logs")
    for recording in report.recordings:
        assert recording.replay is not None
        cases = [
            case
            for row in report.findings
            for case in row.by_recording or (row,)
            if recording.id in case.recording_ids
            and case.further_saving
            and case.finding.saving.method.value == "replay"
        ]
        saved_ns = sum(case.further_saving.expected_ns for case in cases if case.further_saving)
        assert cases[0].step_ns is not None
        joint_ns = recording.replay.joint_step_ns
        assert joint_ns is not None
        assert joint_ns <= (cases[0].step_ns - saved_ns) * (1 + 1e-6)  # a limit above may leave a fix less room
