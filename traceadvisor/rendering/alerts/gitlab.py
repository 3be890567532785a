"""Findings as a GitLab Code Quality report.

Fields: https://docs.gitlab.com/ci/testing/code_quality/, "Code Quality report format".
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from traceadvisor.model.findings import Severity
from traceadvisor.model.report import Report
from traceadvisor.rendering.alerts.alert import Alert, alerts_of
from traceadvisor.rendering.formats import CHECK_PREFIX

SEVERITY = {Severity.HIGH: "major", Severity.MEDIUM: "minor", Severity.LOW: "info"}


def render(report: Report) -> bytes:
    """The alerts as UTF-8 JSON."""
    return code_quality(alerts_of(report))


def code_quality(alerts: Iterable[Alert]) -> bytes:
    """Alerts as a Code Quality report."""
    found = [
        {
            "description": alert.text,
            "check_name": f"{CHECK_PREFIX}{alert.rule.id}",
            "fingerprint": alert.fingerprint,
            "severity": SEVERITY[alert.severity],
            "location": {"path": alert.place.file, "lines": {"begin": alert.place.line}},
        }
        for alert in alerts
    ]
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
