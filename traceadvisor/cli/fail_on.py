"""``--fail-on``: conditions under which ``report`` exits with 1."""

from __future__ import annotations

from collections.abc import Sequence

from traceadvisor.cli.options import words
from traceadvisor.config import TABLE, Settings, nearest
from traceadvisor.errors import ConfigError, TraceAdvisorError, UsageError
from traceadvisor.judging.catalogue import Catalogue
from traceadvisor.model.findings import Severity
from traceadvisor.model.health import HealthStatus
from traceadvisor.model.report import Report

_SEVERITIES = {severity.value: severity for severity in Severity}
DEGRADED = "degraded"


def parse_conditions(texts: Sequence[str], settings: Settings, catalogue: Catalogue) -> tuple[str, ...]:
    """The conditions of ``--fail-on`` (comma-separated); without the option, those of the settings.

    Raises:
        UsageError: an option value is not a severity, a rule id or ``degraded``.
        ConfigError: a condition in the settings is none of these.
    """
    ids = (*(rule.meta.id for rule in catalogue.known), *sorted(catalogue.absent))
    known = (*_SEVERITIES, DEGRADED, *ids)
    spelled = {name.lower(): name for name in known}
    conditions = tuple(spelled.get(word.lower(), word) for word in (words(texts) if texts else settings.fail_on))
    for condition in conditions:
        if condition not in known:
            raise _unknown(condition, known, None if texts else settings)
    return conditions


def _unknown(condition: str, known: Sequence[str], settings: Settings | None) -> TraceAdvisorError:
    what = f"a severity ({', '.join(_SEVERITIES)}), {DEGRADED!r} or a rule id"
    like = nearest(condition, known)
    if settings is not None:
        return ConfigError(settings.origin, f"{TABLE}.fail_on names {condition!r}", expected=what, nearest=like)
    suggestion = f" Did you mean {like!r}?" if like else ""
    return UsageError(f"Unknown --fail-on condition {condition!r}. Expected {what}.{suggestion}")


def first_met(conditions: Sequence[str], report: Report) -> str | None:
    """A sentence on the first condition that is true; None if none is."""
    return next((reason for condition in conditions if (reason := _met(condition, report))), None)


def _met(condition: str, report: Report) -> str | None:
    if condition == DEGRADED:
        return "the input is damaged or incomplete" if report.health.status is not HealthStatus.OK else None
    if condition in _SEVERITIES:
        order = list(Severity)
        worst = order.index(_SEVERITIES[condition])
        cases = [case for row in report.findings for case in (row, *row.by_recording)]
        found = [case for case in cases if order.index(case.severity) <= worst]
        return f"{found[0].finding.rule.id} has severity {found[0].severity.value}" if found else None
    found = [row for row in report.findings if condition in {row.finding.rule.id, *row.also}]
    return f"{condition} found a problem" if found else None
