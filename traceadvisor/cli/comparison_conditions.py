"""The conditions of ``--fail-on`` on a comparison: regressions and new findings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from traceadvisor.cli.options import words
from traceadvisor.errors import UsageError
from traceadvisor.frozen import frozen
from traceadvisor.model.findings import Severity

_REGRESSION = re.compile(r"regression(?:=(\d+(?:\.\d+)?)%?)?", re.IGNORECASE)
_NEW = re.compile(r"new(?::(\w+))?", re.IGNORECASE)
_SEVERITIES = {severity.value: severity for severity in Severity}

EXPECTED = "'regression', 'regression=5%', 'new', or 'new:' with a severity (high, medium, low) or a rule id"


@frozen
class Regression:
    """The step got longer by more than a limit."""

    limit_share: float | None
    """None: by any amount that matters."""


@frozen
class NewFinding:
    """HEAD has a finding that BASE has not."""

    severity: Severity | None = None
    """That or worse; None for any."""

    rule_id: str | None = None


Condition = Regression | NewFinding


def split_conditions(texts: Sequence[str]) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
    """The conditions on a comparison, and the other ones.

    Raises:
        UsageError: a regression has no valid limit.
    """
    conditions: list[Condition] = []
    others: list[str] = []
    for word in words(texts):
        if found := _REGRESSION.fullmatch(word):
            conditions.append(Regression(None if found[1] is None else float(found[1]) / 100))
        elif found := _NEW.fullmatch(word):
            named = (found[1] or "").lower()
            severity = _SEVERITIES.get(named)
            conditions.append(NewFinding(severity, found[1].upper() if found[1] and severity is None else None))
        elif word.lower().startswith(("regression", "new:")):
            raise UsageError(f"Unknown --fail-on condition {word!r}. Expected {EXPECTED}.")
        else:
            others.append(word)
    return tuple(conditions), tuple(others)
