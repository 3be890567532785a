"""``--fail-on``: when a report is to fail a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceadvisor.engine import all_rules
from traceadvisor.errors import UsageError
from traceadvisor.model.findings import Severity
from traceadvisor.model.health import HealthStatus
from traceadvisor.model.report import Report

_SEVERITIES = {severity.value: severity for severity in Severity}
DEGRADED = "degraded"


def parse_conditions(texts: Iterable[str]) -> tuple[str, ...]:
    """The conditions named in comma-separated texts.

    Raises:
        UsageError: a condition is neither a severity, nor a rule's id, nor ``degraded``.
    """
    ids = [rule.meta.id for rule in all_rules()]
    known = [*_SEVERITIES, DEGRADED, *ids]
    spelled = {name.lower(): name for name in known}
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    conditions = tuple(spelled.get(word.lower(), word) for word in words)
    for condition in conditions:
        if condition not in known:
            raise UsageError(f"Unknown --fail-on condition {condition!r}. Known are: {', '.join(known)}.")
    return conditions


def first_met(conditions: Sequence[str], report: Report) -> str | None:
    """The first condition that holds, in words; None where none does."""
    return next((reason for condition in conditions if (reason := _met(condition, report))), None)


def _met(condition: str, report: Report) -> str | None:
    if condition == DEGRADED:
        return "the input is damaged or incomplete" if report.health.status is not HealthStatus.OK else None
    if condition in _SEVERITIES:
        order = list(Severity)
        worst = order.index(_SEVERITIES[condition])
        found = [row for row in report.findings if order.index(row.severity) <= worst]
        return f"{found[0].finding.rule.id} is of severity {found[0].severity.value}" if found else None
    found = [row for row in report.findings if condition in {row.finding.rule.id, *row.also}]
    return f"{condition} was found" if found else None
