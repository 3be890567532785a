"""The order of findings: those of the same time folded into one, the largest saving first, near ties by trust."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from traceadvisor.facts import Facts
from traceadvisor.model.findings import Confidence, Effort, Finding, Found, Severity
from traceadvisor.model.report import OutcomeRow, RankedFinding

HIGH_SHARE, MEDIUM_SHARE = 0.10, 0.03
"""Severity is the expected saving's share of the step."""

FOLDING_SHARE = 0.8
"""Two findings are one when their claims share more than this of the larger."""

NEARLY_EQUAL_SHARE = 0.1
"""Two expected savings are about as large when they differ by no more than this of the larger.

A replay is believed when it is off by up to 2% of the step, which is a tenth of a saving of a fifth of it, and what is
foretold of whole fixes misses by more (``docs/validation.md``). A limit in points of the step would take the smallest
savings for as good as none.
"""


@dataclass(slots=True)
class _Row:
    """A finding with those folded into it."""

    finding: Finding
    also: list[str]


def folded(facts: Facts, outcomes: Iterable[OutcomeRow]) -> list[RankedFinding]:
    """One recording's findings, those that claim the same time folded into the one that knows most."""
    rows = [
        _Row(row.outcome.finding, []) for row in outcomes if isinstance(row.outcome, Found) and not row.rule.umbrella
    ]
    for row in list(rows):
        refiner = next((other for other in rows if _refines(other.finding, row.finding)), None)
        if refiner:
            refiner.also += [row.finding.rule.id, *row.also]
            rows.remove(row)
    return [placed(row.finding, (facts.recording_id,), facts.step_ns, tuple(sorted(row.also))) for row in rows]


def _refines(finding: Finding, other: Finding) -> bool:
    """Whether a finding says more than another of the same time."""
    if other.rule.id not in finding.rule.refines:
        return False
    shared = (finding.claims & other.claims).total_ns
    return shared > FOLDING_SHARE * max(finding.claims.total_ns, other.claims.total_ns)


def placed(
    finding: Finding, recording_ids: tuple[str, ...], step_ns: float | None, also: tuple[str, ...] = ()
) -> RankedFinding:
    """A finding with its severity, by the share of the step that it is expected to save."""
    share = finding.saving.expected_ns / step_ns if step_ns else 0.0
    severity = Severity.HIGH if share >= HIGH_SHARE else Severity.MEDIUM if share >= MEDIUM_SHARE else Severity.LOW
    return RankedFinding(finding, recording_ids, severity, share, also, step_ns=step_ns)


def ranked(findings: Iterable[RankedFinding]) -> tuple[RankedFinding, ...]:
    """The largest expected saving first, as a share of the step; of those about as large, the surest and easiest first.

    A finding is compared with the largest of its neighbours, so that many small differences make no large one.
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
