import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build_report import launch_finding, loader_finding, one_recording, ranked
from tests.judging.test_reach import of_origin
from tests.recordings.advice import Label, Origin, folder_of
from traceadvisor.api import load
from traceadvisor.errors import UsageError
from traceadvisor.experiments.fixes import NOT_REACHED, changes, ledger, proposals
from traceadvisor.experiments.next_experiment import ALL_FIXES
from traceadvisor.model.findings import Estimate, Finding, Fix, Method, RuleMeta, Severity
from traceadvisor.model.report import FoldedBecause, FoldedFinding, RankedFinding, Report
from traceadvisor.model.saving import of_the_fix
from traceadvisor.model.setting_value import SettingValue
from traceadvisor.rules.idle.idle002_launch_bound import COMPILED

MS = 1_000_000


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"num_workers": 100_000}, "proposes more than 256 for num_workers"),
        ({"num_workers": 10**6000}, "proposes more than 256 for num_workers"),
        ({"num_workers": -1}, "no valid value"),
        ({"num_workers": "4"}, "no valid value"),
        ({"num_workers": True}, "no valid value"),
        ({"amp": "float64"}, "no valid value"),
        ({"env:LD_PRELOAD": "x.so"}, "a setting that `try` cannot change"),
        ({"patch": "bfloat16"}, "a setting that `try` cannot change"),
        ({"cached": True}, "a setting that `try` cannot change"),
        ({}, "changes code of the script"),
    ],
)
def test_a_report_from_somebody_else_sets_nothing_that_is_not_safe_to_try(
    settings: dict[str, SettingValue], reason: str
) -> None:
    found, others = proposals(_report(_finding("DATA002", settings, _SIMULATED, loader_finding())))
    assert found == ()
    assert reason in others["DATA002"]


def _merged(settings: dict[str, SettingValue]) -> RankedFinding:
    """A code change, with a finding about the same time in it whose fix halves the step by these settings."""
    code = _finding("DATA012", {}, _SIMULATED, loader_finding())
    workers = _finding("DATA002", settings, Estimate.simulated(50 * MS, 50 * MS, 50 * MS), loader_finding()).finding
    folded = FoldedFinding(workers.rule, FoldedBecause.SAME_TIME, workers.fix, workers.saving)
    return replace(code, folded=(folded,), step_ns=100.0 * MS)


def test_a_setting_of_a_finding_that_was_merged_into_another_one_is_tried() -> None:
    row = _merged({"num_workers": 1})
    found, others = proposals(_report(row))
    assert [(one.fix, one.settings, one.expected) for one in found] == [("DATA002", {"num_workers": 1}, 0.5)]
    assert [*others] == ["DATA012"]
    assert row.has_settings


def test_a_merged_finding_can_be_named() -> None:
    report = _report(_merged({"num_workers": 1}))
    assert [one.fix for one in proposals(report, ["DATA002"])[0]] == ["DATA002"]
    with pytest.raises(UsageError, match=r"Its findings: DATA012, DATA002\."):
        proposals(report, ["GPU001"])


def test_a_merged_code_change_is_named_where_it_is_wanted_only() -> None:
    report = _report(_merged({}))
    assert [*proposals(report)[1]] == ["DATA012"]
    assert "changes code" in proposals(report, ["DATA002"])[1]["DATA002"]


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/experiments")
@pytest.mark.parametrize("label", of_origin(Origin.REAL), ids=lambda label: label.path)
def test_settings_on_public_recordings_are_those_of_the_code(label: Label, shared_traces: Path) -> None:
    assert shared_traces.is_dir()
    _compare_with_code(label)


@pytest.mark.nightly("traceadvisor/rules", "traceadvisor/experiments")
@pytest.mark.parametrize("label", of_origin(Origin.PLANTED, Origin.GENERATED), ids=lambda label: label.path)
def test_settings_on_planted_recordings_are_those_of_the_code(label: Label) -> None:
    _compare_with_code(label)


def _compare_with_code(label: Label) -> None:
    for row in load(folder_of(label)).findings:
        for case in (row, *row.by_recording):
            fix = case.finding.fix
            expected = {} if fix.summary == COMPILED.summary else _settings_in(fix.change or "")
            assert fix.settings == expected


_NUMBER = re.compile(r"\b(num_workers|prefetch_factor|batch_size)=(\d+)")
_WORDS: tuple[tuple[str, str, SettingValue], ...] = (
    (r"pin_memory=True", "pin_memory", True),
    (r"^batch = .*non_blocking=True", "non_blocking", True),
    (r"persistent_workers=True", "persistent_workers", True),
    (r"fused=True", "fused", True),
    (r"foreach=True", "foreach", True),
    (r"zero_grad\(set_to_none=True", "set_to_none", True),
    (r"to\(memory_format=torch\.channels_last\)", "channels_last", True),
    (r"cudnn\.benchmark = True", "cudnn_benchmark", True),
    (r"matmul_precision\(|fp32_precision|allow_tf32", "tf32", True),
    (r"autocast\(.*dtype=torch\.float16", "amp", "float16"),
    (r"autocast\(.*dtype=torch\.bfloat16", "amp", "bfloat16"),
    (r"torch\.compile\(model(\)|, mode)", "compile", True),
)


def _settings_in(change: str) -> dict[str, SettingValue]:
    """The settings that a reader finds in a code change."""
    code = re.sub(r"#.*", "", change)
    found: dict[str, SettingValue] = {name: int(number) for name, number in _NUMBER.findall(code)}
    return found | {name: value for pattern, name, value in _WORDS if re.search(pattern, code, re.MULTILINE)}


def test_no_text_of_a_report_from_somebody_else_is_a_command_to_a_terminal() -> None:
    hostile = "DATA002\n::error::\x1b]0;title\x07\u202e"
    (one,), _ = proposals(_report(_finding(hostile, {"num_workers": 2}, _SIMULATED, loader_finding())))
    assert (one.fix, one.settings) == ("DATA002 ::error::", {"num_workers": 2})
    assert one.title.isprintable()
    _, others = proposals(_report(_finding(hostile, {}, _SIMULATED, loader_finding())))
    assert all(text.isprintable() for item in others.items() for text in item)


def _finding(rule: str, settings: dict[str, SettingValue], saving: Estimate, base: Finding) -> RankedFinding:
    recording = one_recording().recordings[0]
    finding = replace(
        base, rule=RuleMeta(rule, rule.lower(), "A title"), fix=Fix("Do it", settings=settings), saving=saving
    )
    return replace(ranked(finding, recording, Severity.HIGH), step_ns=100 * MS)


def _report(*findings: RankedFinding) -> Report:
    return replace(one_recording(), findings=findings)


_SIMULATED = Estimate(20 * MS, 30 * MS, 40 * MS, Method.REPLAY)
_LIMIT = Estimate(0, 0, 50 * MS, Method.BOUND, of_the_fix("it is not simulated"))


def test_the_prediction_is_the_step_after_the_fix_over_the_step_before() -> None:
    report = _report(_finding("DATA002", {"num_workers": 2}, _SIMULATED, loader_finding()))
    (one,), others = proposals(report)
    assert (one.fix, one.settings) == ("DATA002", {"num_workers": 2})
    assert (one.low, one.expected, one.high) == pytest.approx((0.6, 0.7, 0.8))
    assert not others


def test_an_upper_limit_of_a_saving_has_no_expected_step() -> None:
    report = _report(_finding("GPU005", {"fused": True}, _LIMIT, launch_finding()))
    (one,), _ = proposals(report)
    assert (one.low, one.expected, one.high) == (0.5, None, 1.0)


def test_a_saving_with_a_wide_range_has_an_expected_step() -> None:
    wide = Estimate(5 * MS, 30 * MS, 40 * MS, Method.MODEL)
    (one,), _ = proposals(_report(_finding("DATA002", {"num_workers": 2}, wide, loader_finding())))
    assert (one.low, one.expected, one.high) == pytest.approx((0.6, 0.7, 0.95))


def test_a_setting_without_a_measurement_says_whether_the_script_ended_first() -> None:
    found, _ = proposals(_report(_finding("GPU005", {"fused": True}, _LIMIT, launch_finding())))
    rows = [ledger(found, (), {}, why, is_whole=True)[0].problem for why in NOT_REACHED]
    assert rows == ["the budget was spent before it was measured", "the script ended before it was measured"]


def test_several_fixes_are_also_measured_together() -> None:
    report = _report(
        _finding("DATA002", {"num_workers": 2}, _SIMULATED, loader_finding()),
        _finding("GPU005", {"fused": True}, _LIMIT, launch_finding()),
        _finding("DATA003", {"num_workers": 2}, _SIMULATED, loader_finding()),
        _finding("MEM003", {}, _LIMIT, loader_finding()),
    )
    found, others = proposals(report)
    assert [one.fix for one in found] == ["DATA002", "GPU005", ALL_FIXES]
    assert found[-1].settings == {"num_workers": 2, "fused": True}
    assert "same settings as DATA002" in others["DATA003"]
    assert "changes code" in others["MEM003"]
    assert [change.name for change in changes(found)] == ["DATA002", "GPU005"]


def test_only_the_named_fixes_are_taken() -> None:
    report = _report(
        _finding("DATA002", {"num_workers": 2}, _SIMULATED, loader_finding()),
        _finding("GPU005", {"fused": True}, _LIMIT, launch_finding()),
    )
    assert [one.fix for one in proposals(report, ["gpu005"])[0]] == ["GPU005"]
    with pytest.raises(UsageError, match=r"no finding GPU999\. Its findings: DATA002, GPU005"):
        proposals(report, ["GPU999"])
