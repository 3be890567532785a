"""Orders the findings of one recording, and gives each its severity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen, replace
from traceadvisor.model.findings import (
    Finding,
    Found,
    Method,
    RuleOutcome,
    Severity,
)
from traceadvisor.model.health import HealthNote
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import RecordedFinding
from traceadvisor.model.steps import StepSource
from traceadvisor.model.workload import Workload
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.what_if import Edit, Scenario
from traceadvisor.rules.base import Rule
from traceadvisor.savings.estimates import without_claims
from traceadvisor.savings.floors import left_share
from traceadvisor.savings.interval import in_undisturbed_steps, stretch
from traceadvisor.savings.order import Joint, in_order
from traceadvisor.savings.shared_code import share_beside

HIGH_SHARE, MEDIUM_SHARE = 0.10, 0.03
"""Limits of severity: the expected saving of the fix alone, as a share of the step."""

FAR_SHARE = 0.05
"""Difference of the mean step from the median one from which a share has to say which it is of."""

FAILED = HealthNote(
    "simulation-failed",
    "The fixes could not be simulated together, so savings after other fixes follow from the claimed time alone. "
    "This is a fault of TraceAdvisor: please report it.",
)


@frozen(eq=False)
class Ranking:
    """The findings of one recording in order."""

    rows: tuple[RecordedFinding, ...]
    simulated: ReplayFigures | None
    """The checks of the simulation; None without one."""

    notes: tuple[HealthNote, ...] = ()
    """Notes on a simulation that failed."""


def ranked(facts: Facts, rules: Iterable[Rule], outcomes: Iterable[RuleOutcome]) -> Ranking:
    """The findings of one recording in order, and the checks of the simulation.

    Without a simulation, or if it fails, savings after other fixes follow from the claimed time alone.
    """
    by_id = {rule.meta.id: rule for rule in rules}
    refines = {rule_id: rule.refines for rule_id, rule in by_id.items()}
    found = [outcome.finding for outcome in outcomes if isinstance(outcome, Found)]
    findings = [finding for finding in found if not by_id[finding.rule.id].umbrella]
    step_ns = facts.step_ns
    notes: tuple[HealthNote, ...] = ()
    beside = partial(share_beside, facts.run.stack_samples)
    try:
        joint = Simulation(facts, facts.replay, by_id) if facts.replay and step_ns else None
        placement = in_order(findings, refines, joint, step_ns, beside)
    except Exception:  # noqa: BLE001  # like a failing rule, it must not end the report
        joint, placement, notes = None, in_order(findings, refines, None, step_ns, beside), (FAILED,)
    figures = None
    if joint and step_ns:
        share = placement.joint_share
        figures = joint.replay.figures(None if share is None else (1 - share) * step_ns)
    rows = tuple(
        replace(
            with_severity(row.finding, (facts.recording_id,), step_ns),
            also=tuple(sorted({each.rule.id for each in row.folded})),
            further_saving=row.further_saving,
            folded=row.folded,
            of_window=facts.steps.source is StepSource.WINDOW,
            of_inference=facts.workload is not Workload.TRAINING,
        )
        for row in placement.rows
    )
    return Ranking(rows, figures, notes)


@frozen(eq=False)
class Simulation(Joint):
    """The simulation of one recording."""

    facts: Facts
    replay: Replay
    rules: Mapping[str, Rule]

    @property
    def wrong_share(self) -> float:
        """Share of the step by which the simulation may be wrong, 0..1."""
        return self.replay.gate.wrong_share

    def saving_share(self, edits: Iterable[Edit], scenario: Scenario) -> float:
        """Share of the step that some fixes save together."""
        edits = tuple(edits)
        return in_undisturbed_steps(self.facts, self.replay, edits, self.replay.saving_share(edits, scenario))

    def most_share(self, edits: Iterable[Edit]) -> float:
        """Largest share of the step that some fixes can save, whatever overlaps."""
        return 1 - left_share(self.replay, tuple(edits), Scenario.HIGH)

    def edit_of(self, finding: Finding) -> Edit | None:
        """The simulated fix, or the step without what the finding claims; None if the fix saves other time, too."""
        saving, edit = finding.saving, finding.fix.what_if
        if finding.of_run or not saving.high_ns:
            return None
        if saving.method is Method.REPLAY:
            return edit if isinstance(edit, Edit) else None
        claims = finding.claims | finding.also_shortens
        if saving.method is not Method.BOUND or self.rules[finding.rule.id].also_saves:
            return None
        claimed_ns = self.facts.per_step_ns(claims) * stretch(self.facts)
        reach = saving.high_ns / claimed_ns if claimed_ns else 0.0
        return without_claims(self.facts, claims, reach, 1.0)


def with_severity(finding: Finding, recording_ids: tuple[str, ...], step_ns: float | None) -> RecordedFinding:
    """The finding with its severity, from its expected saving as a share of the step."""
    is_mean = bool(finding.whole_ns and step_ns and not finding.of_run)
    of_mean = is_mean and abs((finding.whole_ns or 0.0) / (step_ns or 1.0) - 1) > FAR_SHARE
    step_ns = finding.whole_ns or step_ns
    share = finding.saving.expected_ns / step_ns if step_ns else 0.0
    severity = Severity.HIGH if share >= HIGH_SHARE else Severity.MEDIUM if share >= MEDIUM_SHARE else Severity.LOW
    return RecordedFinding(finding, recording_ids, severity, share, step_ns=step_ns, of_mean_step=of_mean)
