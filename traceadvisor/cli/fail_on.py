"""``--fail-on``: conditions under which ``report`` and ``compare`` exit with 1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from traceadvisor.cli.options import words
from traceadvisor.config import TABLE, Settings, nearest
from traceadvisor.errors import ConfigError, UsageError
from traceadvisor.frozen import frozen
from traceadvisor.judging.catalogue import Catalogue
from traceadvisor.judging.ranking import FAILED
from traceadvisor.model.findings import Failed, Severity
from traceadvisor.model.health import HealthStatus
from traceadvisor.model.report import Report
from traceadvisor.model.verdict import VerdictCertainty

_SEVERITIES = {severity.value: severity for severity in Severity}
_CERTAINTIES = {one.value: one for one in (VerdictCertainty.LIKELY, VerdictCertainty.SHOWN)}
_REGRESSION = re.compile(rf"regression(?::({'|'.join(_CERTAINTIES)}))?(?:=(\d+(?:\.\d+)?)%?)?", re.IGNORECASE)
_NEW = "new"


class State(Enum):
    """A condition on the report as a whole."""

    DEGRADED = "degraded"
    FAILED_CHECK = "failed-check"


@frozen
class Found:
    """A finding."""

    severity: Severity | None = None
    """This severity or a worse one; None for any."""

    rule_id: str | None = None
    """None for any rule."""

    is_new: bool = False
    """Whether it must be new in HEAD of a comparison."""

    def covers(self, rule_ids: set[str], severity: Severity | None) -> bool:
        """Whether a finding of these rules with this severity meets the condition."""
        if self.rule_id is not None:
            return self.rule_id in rule_ids
        order = list(Severity)
        return self.severity is None or (severity is not None and order.index(severity) <= order.index(self.severity))


@frozen
class Regression:
    """The step got longer by more than a limit."""

    limit_share: float | None
    """None: by any amount that matters."""

    least: VerdictCertainty = VerdictCertainty.LIKELY
    """Certainty from which on it counts."""


Condition = State | Found | Regression


def parse_conditions(
    texts: Sequence[str], settings: Settings, catalogue: Catalogue, *, compares: bool, only_compares: bool = False
) -> tuple[Condition, ...]:
    """The conditions of ``--fail-on`` (comma-separated); without the option, those of the settings.

    Args:
        texts: the values of the option; the settings count if there are none, and only for a report.
        settings: have conditions too.
        catalogue: the rules that a condition may name.
        compares: whether a comparison is made, so that conditions may be about it.
        only_compares: whether there is nothing but a comparison.

    Raises:
        UsageError: an option value is no condition, or needs a comparison that is not made.
        ConfigError: a condition in the settings is none of a report.
    """
    grammar = _Grammar(catalogue)
    if not texts and only_compares:
        return ()
    if not texts:
        return tuple(_of_settings(word, grammar, settings) for word in settings.fail_on)
    found = tuple(map(grammar.read, words(texts)))
    for word, condition in zip(words(texts), found, strict=True):
        if _is_compared(condition) and not compares:
            raise UsageError(f"--fail-on {word} needs --base, with what to compare with.")
        if only_compares and not _is_compared(condition):
            raise UsageError(f"--fail-on {word} is about a single report. Expected {grammar.of_comparison}.")
    return found


def first_met(conditions: Sequence[Condition], report: Report) -> str | None:
    """A sentence on the first condition that is true of a report; None if none is."""
    return next((reason for condition in conditions if (reason := _met(condition, report))), None)


def _of_settings(word: str, grammar: _Grammar, settings: Settings) -> Condition:
    try:
        condition = grammar.read(word)
    except UsageError:
        condition = None
    if condition is None or _is_compared(condition):
        like = nearest(word, grammar.known)
        found = f"{TABLE}.fail_on names {word!r}"
        raise ConfigError(settings.origin, found, expected=grammar.of_report, nearest=like)
    return condition


class _Grammar:
    """Reads conditions, given the rules that there are."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._ids = {id_.lower(): id_ for id_ in (*(rule.meta.id for rule in catalogue.known), *catalogue.absent)}
        self.known = (*_SEVERITIES, *(state.value for state in State), *sorted(self._ids.values()))
        states = " or ".join(repr(state.value) for state in State)
        self.of_report = f"a severity ({', '.join(_SEVERITIES)}), {states} or a rule id"
        self.of_comparison = (
            "'regression', 'regression=5%', 'regression:shown', 'new', or 'new:' with a severity or a rule id"
        )

    def read(self, word: str) -> Condition:
        """The condition that a word names.

        Raises:
            UsageError: it names none.
        """
        if found := _REGRESSION.fullmatch(word):
            least = _CERTAINTIES[(found[1] or VerdictCertainty.LIKELY.value).lower()]
            return Regression(None if found[2] is None else float(found[2]) / 100, least)
        prefix, colon, name = word.lower().rpartition(":")
        if colon and prefix != _NEW:
            raise self._unknown(word)
        if not colon and name == _NEW:
            return Found(is_new=True)
        if name in _SEVERITIES:
            return Found(severity=_SEVERITIES[name], is_new=bool(colon))
        if name in self._ids:
            return Found(rule_id=self._ids[name], is_new=bool(colon))
        if not colon and name in {state.value for state in State}:
            return State(name)
        raise self._unknown(word)

    def _unknown(self, word: str) -> UsageError:
        like = nearest(word, (*self.known, "regression", _NEW))
        suggestion = f" Did you mean {like!r}?" if like else ""
        expected = f"{self.of_report}; with a comparison also {self.of_comparison}"
        return UsageError(f"Unknown --fail-on condition {word!r}. Expected {expected}.{suggestion}")


def _is_compared(condition: Condition) -> bool:
    return isinstance(condition, Regression) or (isinstance(condition, Found) and condition.is_new)


def _met(condition: Condition, report: Report) -> str | None:
    match condition:
        case State.DEGRADED:
            return "the input is damaged or incomplete" if report.health.status is not HealthStatus.OK else None
        case State.FAILED_CHECK:
            failed = [row.rule_id for row in report.outcomes if isinstance(row.outcome, Failed)]
            if not failed and any(note.code == FAILED.code for note in report.health.notes):
                return "the simulation of several fixes failed"
            return f"the check {failed[0]} failed" if failed else None
        case Found(rule_id=str() as rule_id, is_new=False):
            found = [row for row in report.findings if condition.covers({row.finding.rule.id, *row.also}, None)]
            return f"{rule_id} found a problem" if found else None
        case Found(is_new=False):
            cases = [case for row in report.findings for case in (row, *row.by_recording)]
            worst = next((case for case in cases if condition.covers(set(), case.severity)), None)
            return f"{worst.finding.rule.id} has severity {worst.severity.value}" if worst else None
        case _:
            return None
