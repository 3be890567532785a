"""Orders the findings of one recording, and gives each its severity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.judging.fold_overlapping import Joint, Placement, in_order
from traceadvisor.judging.laws import TAKEN_OVER, without_claims
from traceadvisor.judging.run_rule import Judged
from traceadvisor.model.findings import (
    FEWEST_STEPS,
    WHOLE_SHARE,
    Clear,
    Finding,
    Found,
    Method,
    RuleOutcome,
    Severity,
    Unit,
)
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import NotWorthDoing, RecordedFinding, Recording
from traceadvisor.model.steps import StepSource
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
            of_window=facts.steps.source is StepSource.WINDOW,
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
        return without_claims(finding, self.rules[finding.rule.id], self.facts, self.facts.launching_operators)


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
    step_ns = finding.whole_ns or step_ns
    share = finding.saving.expected_ns / step_ns if step_ns else 0.0
    severity = Severity.HIGH if share >= HIGH_SHARE else Severity.MEDIUM if share >= MEDIUM_SHARE else Severity.LOW
    return RecordedFinding(finding, recording_ids, severity, share, step_ns=step_ns)


_WORTH_DOING_SHARE = 0.02
"""A fix is not worth doing if its highest saving is below this share of the step."""

_NOTICED_SHARE = 0.0005
"""A smaller share of the step counts as no saving."""

_REPLAYED_SAVING = "simulated saving of the fix"

_LITTLE_OF_IT = 0.25
"""Saving as a share of the removed time, below which other work takes the place of what the fix removes."""


def with_fix_replayed(rule: Rule, facts: Facts, outcome: RuleOutcome) -> RuleOutcome:
    """The outcome; clear if the simulation shows that the fix saves nothing, or less than 2% for a popular fix."""
    if rule.umbrella or not isinstance(outcome, Found):
        return outcome
    saving = outcome.finding.saving
    share = saving.high_ns / facts.step_ns if facts.step_ns else 1.0
    least_share = _WORTH_DOING_SHARE if rule.popular_fix else _NOTICED_SHARE
    if saving.method is not Method.REPLAY or share >= least_share:
        return outcome
    if not rule.popular_fix:
        return Clear(_REPLAYED_SAVING, share, _NOTICED_SHARE, Unit.SHARE, TAKEN_OVER)
    return Clear(_REPLAYED_SAVING, share, _WORTH_DOING_SHARE, Unit.SHARE, TAKEN_OVER, saving_share=share)


def not_worth_doing(
    catalogue: Iterable[Rule], outcomes: Iterable[Judged], recordings: Iterable[Recording]
) -> tuple[NotWorthDoing, ...]:
    """Popular fixes that save something, but less than 2% of the step in every recording; each with its highest saving.

    Recordings of one or two steps are ignored. So are fixes for time that a more specific finding claims.
    """
    rules = {rule.meta.id: rule for rule in catalogue}
    popular = {rule_id: rule.popular_fix for rule_id, rule in rules.items() if rule.popular_fix}
    rows = tuple(outcomes)
    found = {(row.recording_ids[0], row.rule.id) for row in rows if isinstance(row.outcome, Found)}
    contradicted = {(recording, refined) for recording, rule_id in found for refined in rules[rule_id].refines}
    long_enough = {one.id for one in recordings if sum(row.step.kept for row in one.steps) >= FEWEST_STEPS}
    with_findings = {recording for recording, rule_id in found if not rules[rule_id].umbrella}
    small: dict[str, list[tuple[float, str, str]]] = {}
    for row in rows:
        recording = row.recording_ids[0]
        if not isinstance(row.outcome, Clear) or row.rule.id not in popular or recording not in long_enough:
            continue
        share = _most_share(row.outcome)
        if share is not None and share < _WORTH_DOING_SHARE and (recording, row.rule.id) not in contradicted:
            reason = _why_small(row.outcome, has_findings=recording in with_findings)
            small.setdefault(row.rule.id, []).append((share, reason, recording))
    return tuple(_as_one(popular[rule_id], cases) for rule_id, cases in small.items())


def _as_one(fix: str, cases: list[tuple[float, str, str]]) -> NotWorthDoing:
    share, reason, _ = max(cases, key=lambda case: case[0])
    return NotWorthDoing(fix, share, reason, tuple(recording for _, _, recording in cases))


def _most_share(clear: Clear) -> float | None:
    """Upper limit of the saving as a share of the step; None if nothing can be saved, or the limit is unknown.

    Kernels that could not be judged may hold more, so their check sets no limit.
    """
    if clear.judged_share is not None and clear.judged_share < WHOLE_SHARE:
        return None
    if clear.saving_share is not None:
        return clear.saving_share
    return clear.value if clear.unit is Unit.SHARE and clear.value > 0 else None


def _why_small(clear: Clear, *, has_findings: bool) -> str:
    """Why the fix saves little, in sentences."""
    if clear.saving_share is None:
        why_not = f" Not simulated: {clear.not_replayed}." if clear.not_replayed else ""
        return f"The fix removes at most this share of the step: {clear.label}.{why_not}"
    by_little = f"shortens the step by less than {_WORTH_DOING_SHARE:.0%}"
    effect = by_little if clear.saving_share >= _NOTICED_SHARE else "does not shorten the step"
    simulated = f"In the simulation, this fix {effect}"
    if not _is_taken_over(clear):
        return f"{simulated}."
    later = " Check it again after fixing the findings." if has_findings else ""
    return f"{simulated}: {TAKEN_OVER}.{later}"


def _is_taken_over(clear: Clear) -> bool:
    """Whether the fix removes time, but hardly shortens the step."""
    if clear.remark == TAKEN_OVER:
        return True
    there = clear.value if clear.unit is Unit.SHARE else 0.0
    return there >= _WORTH_DOING_SHARE and (clear.saving_share or 0.0) < _LITTLE_OF_IT * there
