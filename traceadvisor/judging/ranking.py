"""Folds findings on the same time into one, and ranks by saving; near ties by confidence and effort."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from traceadvisor.facts import Facts
from traceadvisor.model.findings import Confidence, Effort, Finding, Found, Severity
from traceadvisor.model.report import OutcomeRow, RankedFinding
from traceadvisor.rules.base import Rule

HIGH_SHARE, MEDIUM_SHARE = 0.10, 0.03
"""Limits of severity: the expected saving as a share of the step."""

FOLDING_SHARE = 0.8
"""Two findings are one if their claims overlap by more than this share of the larger claim."""

NEARLY_EQUAL_SHARE = 0.1
"""Two expected savings are nearly equal if they differ by at most this share of the larger.

A simulation is trusted within 2% of the step. That is a tenth of a saving of a fifth of the step. Predictions of whole
fixes have larger errors (``docs/validation.md``). A limit as a share of the step would make all small savings equal.
"""


@dataclass(slots=True)
class _Row:
    """A finding, and the rules of findings folded into it."""

    finding: Finding
    also: list[str]


def folded(facts: Facts, rules: Iterable[Rule], outcomes: Iterable[OutcomeRow]) -> list[RankedFinding]:
    """The findings of one recording. Findings that claim the same time fold into the most specific one."""
    by_id = {rule.meta.id: rule for rule in rules}
    found = [row.outcome.finding for row in outcomes if isinstance(row.outcome, Found)]
    rows = [_Row(finding, []) for finding in found if not by_id[finding.rule.id].umbrella]
    for row in list(rows):
        mine = row.finding
        refiner = next((each for each in rows if _refines(by_id[each.finding.rule.id], each.finding, mine)), None)
        if refiner:
            refiner.also += [row.finding.rule.id, *row.also]
            rows.remove(row)
    return [with_severity(row.finding, (facts.recording_id,), facts.step_ns, tuple(sorted(row.also))) for row in rows]


def _refines(rule: Rule, finding: Finding, other: Finding) -> bool:
    """Whether a rule's finding is more specific than another finding on the same time."""
    if other.rule.id not in rule.refines:
        return False
    shared = (finding.claims & other.claims).total_ns
    return shared > FOLDING_SHARE * max(finding.claims.total_ns, other.claims.total_ns)


def with_severity(
    finding: Finding, recording_ids: tuple[str, ...], step_ns: float | None, also: tuple[str, ...] = ()
) -> RankedFinding:
    """The finding with its severity, from its expected saving as a share of the step."""
    share = finding.saving.expected_ns / step_ns if step_ns else 0.0
    severity = Severity.HIGH if share >= HIGH_SHARE else Severity.MEDIUM if share >= MEDIUM_SHARE else Severity.LOW
    return RankedFinding(finding, recording_ids, severity, share, also, step_ns=step_ns)


def ranked(findings: Iterable[RankedFinding]) -> tuple[RankedFinding, ...]:
    """Findings by expected saving, largest first; nearly equal ones by confidence, then effort.

    Each finding is compared with the largest of its group, so that many small differences do not add up.
    """
    left = sorted(findings, key=lambda row: -row.saving_share)
    order: list[RankedFinding] = []
    while left:
        limit = (1 - NEARLY_EQUAL_SHARE) * left[0].saving_share
        count = sum(row.saving_share >= limit for row in left)
        order += sorted(left[:count], key=_doubt_and_effort)
        left = left[count:]
    return tuple(order)


def _doubt_and_effort(row: RankedFinding) -> tuple[int, int]:
    return list(Confidence).index(row.finding.confidence), list(Effort).index(row.finding.effort)
