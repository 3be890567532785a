from __future__ import annotations

from dataclasses import replace

from tests.build_report import one_recording
from traceadvisor.cli.fail_on import first_met
from traceadvisor.model.findings import Severity


def test_a_severity_is_met_in_any_recording_of_a_row() -> None:
    report = one_recording()
    row = replace(report.findings[0], severity=Severity.LOW)
    elsewhere = replace(row, by_recording=(row, replace(row, severity=Severity.HIGH)))
    assert first_met(("high",), replace(report, findings=(row,))) is None
    assert first_met(("high",), replace(report, findings=(elsewhere,))) == "DATA001 has severity high"
