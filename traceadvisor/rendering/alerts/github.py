"""Findings as annotations of a GitHub workflow: workflow commands, a line each, to be printed in a step.

Syntax and limits: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions, "Setting an error
message", and the section on limits of annotations in a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from traceadvisor.model.findings import Severity
from traceadvisor.model.report import SCHEMA, Report
from traceadvisor.rendering.alerts.alert import Alert, alerts_of
from traceadvisor.text.cleaning import clean, one_line

MOST_OF_A_COMMAND = 10
"""GitHub shows ten annotations of each kind per step."""

COMMAND = {Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "notice"}


def render(report: Report) -> bytes:
    """The annotations as UTF-8 lines, after a line that only debug logs show."""
    return workflow_commands(alerts_of(report), report.tool_version).encode()


def workflow_commands(alerts: Iterable[Alert], tool_version: str) -> str:
    """The most important alerts as workflow commands, as many as GitHub shows."""
    lines = [f"::debug::TraceAdvisor {_data(clean(tool_version))}, {SCHEMA}"]
    count: Counter[str] = Counter()
    for alert in alerts:
        command = COMMAND[alert.severity]
        count[command] += 1
        if count[command] <= MOST_OF_A_COMMAND:
            lines.append(_annotation(command, alert))
    return "\n".join((*lines, ""))


def _annotation(command: str, alert: Alert) -> str:
    place = alert.place
    properties = {"file": place.file, "line": str(place.line), "title": f"{alert.rule.id} {alert.rule.title}"}
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {written}::{_data(alert.message)}"


def _data(text: str) -> str:
    return one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
