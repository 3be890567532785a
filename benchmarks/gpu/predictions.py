"""What a report predicts for a change, as a share of the step that the prediction is of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from traceadvisor.model.findings import Clear, Estimate, Failed, Method, Skipped
from traceadvisor.model.report import FoundFigures, OutcomeRow, Report
from traceadvisor.model.saving import Reason
from traceadvisor.rendering.words import reason_words

Document = dict[str, Any]

ALL_FIXES = "all fixes"


@dataclass(frozen=True, slots=True)
class Prediction:
    """The step after a change over the step before it."""

    status: str
    """found, folded (into another finding, which the rule below names), clear, skipped or absent."""

    rule: str
    method: str | None = None
    low: float | None = None
    """The shortest step; a bound has no expected one."""

    expected: float | None = None
    high: float | None = None
    reason: str | None = None
    """Why the rule found nothing, or why its saving is a bound."""

    def document(self) -> Document:
        """As it stands in a JSON file."""
        return asdict(self)


def predict(report: Report, rules: Sequence[str]) -> Prediction:
    """The prediction of the first of some rules that found something, alone or folded; else why none did."""
    for rule in rules:
        for row in report.findings:
            if row.finding.rule.id == rule and row.step_ns:
                return _of(row.finding.saving, row.step_ns, rule, "found")
    for rule in rules:
        for row in report.findings:
            if rule in row.also and row.step_ns:
                saving = next((one.saving for one in row.folded if one.rule.id == rule), row.finding.saving)
                return _of(saving, row.step_ns, row.finding.rule.id, "folded")
    outcomes = [row for rule in rules for row in report.outcomes if row.rule_id == rule]
    for status in ("clear", "skipped", "failed"):
        for outcome in outcomes:
            if type(outcome.outcome).__name__.lower() == status:
                return Prediction(status, outcome.rule_id, reason=_reason(outcome))
    return Prediction("absent", rules[0])


def predict_all_fixes(report: Report) -> Prediction:
    """The joint replay of all fixes of the first recording."""
    replay = report.recordings[0].replay
    if replay is None or not replay.baseline_step_ns or replay.joint_step_ns is None:
        return Prediction("absent", ALL_FIXES, reason=_words(replay.doubt if replay else None))
    ratio = replay.joint_step_ns / replay.baseline_step_ns
    return Prediction("found", ALL_FIXES, "replay", expected=ratio, reason=_words(replay.device_doubt))


def proposed_workers(report: Report) -> int | None:
    """The number of loader workers that the report proposes, None where it proposes none."""
    for row in report.findings:
        numbers = re.findall(r"num_workers=(\d+)", row.finding.fix.change or "")
        if numbers:
            return int(numbers[-1])
    return None


def found_rules(report: Report) -> list[str]:
    """Ids of the rules that found something."""
    return sorted({row.rule_id for row in report.outcomes if isinstance(row.outcome, FoundFigures)})


def _of(saving: Estimate, step_ns: float, rule: str, status: str) -> Prediction:
    """The prediction of a finding, or of one folded into it, from the saving of its own fix."""
    shortest, expected, longest = (
        max(1 - saved_ns / step_ns, 0.0) for saved_ns in (saving.high_ns, saving.expected_ns, saving.low_ns)
    )
    method = saving.method.value
    if saving.method is not Method.REPLAY:
        return Prediction(status, rule, method, shortest, None, longest, _words(saving.reason))
    return Prediction(status, rule, method, shortest, expected, longest)


def _words(reason: Reason | None) -> str | None:
    return reason_words(reason) if reason else None


def _reason(row: OutcomeRow) -> str | None:
    match row.outcome:
        case Clear(remark=text) | Skipped(reason=text) | Failed(error=text):
            return text
    return None
