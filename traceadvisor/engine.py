"""Runs the rules on the facts of every recording, isolates their failures, folds and ranks what they find."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from statistics import median

from traceadvisor import __version__, rules
from traceadvisor.analysis.device_figures import device_figures
from traceadvisor.analysis.kernel_table import kernel_table
from traceadvisor.analysis.operator_table import operator_table
from traceadvisor.analysis.step_timeline import representative_step, step_timeline
from traceadvisor.facts import Facts
from traceadvisor.model.findings import (
    Clear,
    Confidence,
    Effort,
    Failed,
    Finding,
    Found,
    RuleOutcome,
    Severity,
    Skipped,
    Unit,
)
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.report import (
    NotWorthDoing,
    OutcomeRow,
    RankedFinding,
    Recording,
    RecordingNote,
    Report,
    Source,
)
from traceadvisor.rules.base import Rule

HIGH_SHARE, MEDIUM_SHARE = 0.10, 0.03
"""Severity is the expected saving's share of the step."""

FOLDING_SHARE = 0.8
"""Two findings are one when their claims share more than this of the larger."""

WORTH_DOING_SHARE = 0.02
"""A fix that can gain less than this at most is said not to be worth doing."""


MOST_TABLE_ROWS = 40
"""Kernels and operators beyond these take next to no time."""


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of the package with its default thresholds, by id."""
    found: list[Rule] = []
    for module in pkgutil.iter_modules(rules.__path__):
        if module.name != "base":
            members = vars(import_module(f"{rules.__name__}.{module.name}")).values()
            found += [member() for member in members if _is_rule(member)]
    return tuple(sorted(found, key=lambda rule: rule.meta.id))


def assess(facts: Sequence[Facts], source: Source, health: Health, catalogue: Iterable[Rule] | None = None) -> Report:
    """Everything the rules have to say of some recordings.

    Args:
        facts: one a recording.
        source: what they were read from.
        health: of the input as a whole, the recordings' own apart.
        catalogue: the rules to run; all of them by default.
    """
    chosen = tuple(catalogue) if catalogue is not None else all_rules()
    outcomes = [
        OutcomeRow(rule.meta, (recording.recording_id,), run_rule(rule, recording))
        for rule in chosen
        for recording in facts
    ]
    return Report(
        tool_version=__version__,
        source=source,
        health=_whole_health(facts, health),
        health_notes=(
            *(RecordingNote(note, None) for note in health.notes),
            *(RecordingNote(note, one.recording_id) for one in facts for note in one.notes),
        ),
        recordings=tuple(recording_of(one) for one in facts),
        findings=_ranked([finding for one in facts for finding in _folded(one, outcomes)]),
        not_worth_doing=_not_worth_doing(chosen, outcomes),
        outcomes=tuple(outcomes),
    )


def run_rule(rule: Rule, facts: Facts) -> RuleOutcome:
    """The outcome of one rule on one recording; whatever goes wrong in the rule stays in its outcome."""
    try:
        missing = facts.missing(rule.meta.needs)
        outcome = Skipped(missing) if missing else rule.check(facts)
    except Exception as error:  # noqa: BLE001  # a rule's failure must not take the report with it
        return Failed(f"{type(error).__name__}: {error}")
    return Found(outcome) if isinstance(outcome, Finding) else outcome


def recording_of(facts: Facts) -> Recording:
    """A recording as the report shows it."""
    origin = facts.trace.origin
    durations = [step.duration_ns for step in facts.steps.kept]
    step = representative_step(facts.steps)
    return Recording(
        id=facts.recording_id,
        run=origin.run,
        worker=origin.worker,
        span=origin.span,
        cycle=origin.cycle,
        path=origin.path,
        distributed=facts.trace.distributed,
        device=facts.device,
        step_source=facts.steps.source,
        steps=facts.step_rows,
        dropped_steps=facts.steps.dropped,
        mean_step_ns=facts.mean.duration_ns if facts.mean else None,
        median_step_ns=float(median(durations)) if durations else None,
        undisturbed_median_step_ns=facts.timing.undisturbed_ns,
        samples_per_s=facts.samples_per_s,
        mean_breakdown=facts.mean,
        overlaps=facts.overlaps,
        figures=device_figures(facts.trace, facts.launches, facts.steps.kept_windows),
        timeline=step_timeline(facts.observation, facts.partition, step) if step else None,
        kernels=kernel_table(facts.trace, facts.launches, facts.steps)[:MOST_TABLE_ROWS],
        operators=operator_table(facts.trace, facts.launches, facts.tree, facts.steps)[:MOST_TABLE_ROWS],
        loader_kinds=facts.observation.loader.kinds if facts.observation.loader else (),
        captured=facts.run,
        recorded_wall_ns=facts.recorded_wall_ns,
        telemetry=facts.telemetry,
    )


def _is_rule(member: object) -> bool:
    return isinstance(member, type) and issubclass(member, Rule) and member is not Rule


@dataclass(slots=True)
class _Row:
    """A finding with those folded into it."""

    finding: Finding
    also: list[str]


def _folded(facts: Facts, outcomes: Iterable[OutcomeRow]) -> list[RankedFinding]:
    """One recording's findings, those that claim the same time folded into the one that knows most."""
    rows = [
        _Row(row.outcome.finding, [])
        for row in outcomes
        if isinstance(row.outcome, Found) and row.recording_ids == (facts.recording_id,)
    ]
    for row in list(rows):
        refiner = next((other for other in rows if _refines(other.finding, row.finding)), None)
        if refiner:
            refiner.also += [row.finding.rule.id, *row.also]
            rows.remove(row)
    return [_place(facts, row) for row in rows]


def _refines(finding: Finding, other: Finding) -> bool:
    """Whether a finding says more than another of the same time."""
    if other.rule.id not in finding.rule.refines:
        return False
    shared = (finding.claims & other.claims).total_ns
    return shared > FOLDING_SHARE * max(finding.claims.total_ns, other.claims.total_ns)


def _place(facts: Facts, row: _Row) -> RankedFinding:
    share = row.finding.saving.expected_ns / facts.step_ns if facts.step_ns else 0.0
    severity = Severity.HIGH if share >= HIGH_SHARE else Severity.MEDIUM if share >= MEDIUM_SHARE else Severity.LOW
    return RankedFinding(row.finding, (facts.recording_id,), severity, share, tuple(sorted(row.also)))


def _ranked(findings: Iterable[RankedFinding]) -> tuple[RankedFinding, ...]:
    """By expected saving as a share of the step, then confidence, then ease."""
    confidence, effort = list(Confidence), list(Effort)
    return tuple(
        sorted(
            findings,
            key=lambda row: (
                -row.saving_share,
                confidence.index(row.finding.confidence),
                effort.index(row.finding.effort),
            ),
        )
    )


def _not_worth_doing(catalogue: Iterable[Rule], outcomes: Iterable[OutcomeRow]) -> tuple[NotWorthDoing, ...]:
    """Popular fixes that could gain something, but next to nothing, by the most they could gain anywhere."""
    popular = {rule.meta.id: rule.popular_fix for rule in catalogue if rule.popular_fix}
    small: dict[str, list[tuple[Clear, str]]] = {}
    for row in outcomes:
        match row.outcome:
            case Clear(value=value, unit=Unit.SHARE) if 0 < value < WORTH_DOING_SHARE and row.rule.id in popular:
                small.setdefault(row.rule.id, []).append((row.outcome, row.recording_ids[0]))
    return tuple(
        NotWorthDoing(
            popular[rule_id],
            max(outcome.value for outcome, _ in found),
            f"all of the {found[0][0].label} together is what it could save",
            tuple(recording for _, recording in found),
        )
        for rule_id, found in small.items()
    )


def _whole_health(facts: Iterable[Facts], health: Health) -> Health:
    """The input's health and its recordings' taken together; each trace counts once, however many devices it has."""
    traces = {id(one.trace): one.trace.health for one in facts}.values()
    parts = [health, *traces]
    notes: list[HealthNote] = [*health.notes, *(note for one in facts for note in one.notes)]
    return Health(
        sum(part.events_read for part in parts),
        sum(part.events_dropped for part in parts),
        sum(part.events_repaired for part in parts),
        tuple(dict.fromkeys(notes)),
        unusable=all(not one.steps.kept and one.timing.undisturbed_ns is None for one in facts),
    )
