"""Orders the findings of one recording, and gives each its severity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.judging.laws import without_claims
from traceadvisor.judging.marginal import Joint, Placement, in_order
from traceadvisor.judging.run_rule import Judged
from traceadvisor.model.findings import Finding, Found, Severity
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import RecordedFinding
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.rules.base import Rule

HIGH_SHARE, MEDIUM_SHARE = 0.10, 0.03
"""Limits of severity: the expected saving of the fix alone, as a share of the step."""


def ranked(
    facts: Facts, rules: Iterable[Rule], outcomes: Iterable[Judged]
) -> tuple[tuple[RecordedFinding, ...], ReplayFigures | None]:
    """The findings of one recording in order, and the checks of the simulation.

    Without a simulation the second is None, and savings after other fixes follow from the claimed time alone.
    """
    by_id = {rule.meta.id: rule for rule in rules}
    refines = {rule_id: rule.refines for rule_id, rule in by_id.items()}
    found = [row.outcome.finding for row in outcomes if isinstance(row.outcome, Found)]
    findings = [finding for finding in found if not by_id[finding.rule.id].umbrella]
    placement, figures = _simulated(facts, findings, refines, by_id)
    ids = (facts.recording_id,)
    rows = tuple(
        replace(
            with_severity(row.finding, ids, facts.step_ns),
            also=tuple(sorted(each.rule.id for each in row.folded)),
            further_saving=row.further_saving,
            folded=row.folded,
        )
        for row in placement.rows
    )
    return rows, figures


@frozen(eq=False)
class _Simulation(Joint):
    """The simulation of one recording."""

    facts: Facts
    replay: Replay
    rules: Mapping[str, Rule]

    @property
    def error_share(self) -> float:
        """Difference between the unchanged simulation and the recorded step, 0..1."""
        return abs(self.replay.gate.error_share)

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Share of the step that some fixes save together."""
        return self.replay.saving_share(edits, scenario)

    def without_claims(self, finding: Finding) -> Edit | None:
        """The step without the time that an upper limit claims."""
        return without_claims(finding, self.rules[finding.rule.id], self.facts)


def _simulated(
    facts: Facts, findings: list[Finding], refines: Mapping[str, frozenset[str]], rules: Mapping[str, Rule]
) -> tuple[Placement, ReplayFigures | None]:
    """The placement with fixes simulated together, and the figures of the simulation.

    If the simulation is impossible or fails, findings are placed without it. The rules that use it then say why.
    """
    step_ns = facts.step_ns
    try:
        if facts.replay is not None and step_ns is not None:
            joint: Joint = _Simulation(facts, facts.replay, rules)
            placement = in_order(findings, refines, joint, step_ns)
            share = placement.joint_share
            return placement, facts.replay.figures(None if share is None else (1 - share) * step_ns)
    except Exception:  # noqa: BLE001, S110  # like a failing rule, it must not end the report
        pass
    return in_order(findings, refines, None, step_ns), None


def with_severity(finding: Finding, recording_ids: tuple[str, ...], step_ns: float | None) -> RecordedFinding:
    """The finding with its severity, from its expected saving as a share of the step."""
    share = finding.saving.expected_ns / step_ns if step_ns else 0.0
    severity = Severity.HIGH if share >= HIGH_SHARE else Severity.MEDIUM if share >= MEDIUM_SHARE else Severity.LOW
    return RecordedFinding(finding, recording_ids, severity, share, step_ns=step_ns)
