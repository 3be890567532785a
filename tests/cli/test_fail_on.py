from dataclasses import replace

import pytest

from tests.build_report import one_recording
from traceadvisor.cli.fail_on import Condition, Found, Regression, State, first_met, parse_conditions
from traceadvisor.config import Settings
from traceadvisor.errors import UsageError
from traceadvisor.judging.catalogue import read_catalogue
from traceadvisor.model.findings import Clear, Failed, Severity, Unit
from traceadvisor.model.report import OutcomeRow


def _parsed(*texts: str, compares: bool = True, only_compares: bool = False) -> tuple[Condition, ...]:
    return parse_conditions(
        texts, Settings(), read_catalogue(Settings(plugins=False)), compares=compares, only_compares=only_compares
    )


def test_all_conditions_have_one_grammar() -> None:
    texts = ("regression=5%, new:high", "new,NEW:data001,high,DATA002,regression,degraded,Failed-Check")
    assert _parsed(*texts) == (
        Regression(0.05),
        Found(Severity.HIGH, is_new=True),
        Found(is_new=True),
        Found(rule_id="DATA001", is_new=True),
        Found(Severity.HIGH),
        Found(rule_id="DATA002"),
        Regression(None),
        State.DEGRADED,
        State.FAILED_CHECK,
    )


@pytest.mark.parametrize("text", ["regression=", "new:", "new:DATA0001", "new:degraded", "old:high", "severe"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"Unknown --fail-on condition '{text}'"):
        _parsed(text)


def test_a_condition_on_a_comparison_needs_one() -> None:
    with pytest.raises(UsageError, match="--fail-on new:high needs --base"):
        _parsed("high,new:high", compares=False)


def test_a_comparison_has_no_conditions_on_a_single_report() -> None:
    with pytest.raises(UsageError, match="--fail-on failed-check is about a single report"):
        _parsed("new,failed-check", only_compares=True)


def test_a_severity_is_met_in_any_recording_of_a_row() -> None:
    report = one_recording()
    row = replace(report.findings[0], severity=Severity.LOW)
    elsewhere = replace(row, by_recording=(row, replace(row, severity=Severity.HIGH)))
    assert first_met([Found(Severity.HIGH)], replace(report, findings=(row,))) is None
    assert first_met([Found(Severity.HIGH)], replace(report, findings=(elsewhere,))) == "DATA001 has severity high"


def test_a_check_that_failed_is_a_condition_of_its_own() -> None:
    report = one_recording()
    passed = OutcomeRow("GPU001", (), Clear("waits", 0.01, 0.05, Unit.SHARE))
    failed = OutcomeRow("GPU003", (), Failed("ZeroDivisionError: division by zero"))
    assert first_met([State.FAILED_CHECK], replace(report, outcomes=(passed,))) is None
    assert first_met([State.FAILED_CHECK], replace(report, outcomes=(passed, failed))) == "the check GPU003 failed"
