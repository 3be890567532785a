"""Runs the rules on the facts of every recording, isolates their failures, folds and ranks what they find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from traceadvisor import __version__
from traceadvisor.analysis.memory.step_memory import memory_over_time
from traceadvisor.analysis.operators.tables import device_figures, kernel_table, operator_table
from traceadvisor.analysis.steps.timeline import representative_step, step_timeline
from traceadvisor.facts import Facts
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.judging.conformity import conforms
from traceadvisor.judging.cost import run_cost, worth
from traceadvisor.judging.plugins import output_aside
from traceadvisor.judging.popular_fixes import not_worth_doing, tried
from traceadvisor.judging.ranking import folded, placed, ranked
from traceadvisor.judging.ranks import RankRecording, compare, rank_recording, side_by_side
from traceadvisor.model.cost import Price, RunCost
from traceadvisor.model.findings import (
    Clear,
    Failed,
    Finding,
    Found,
    RuleOutcome,
    Skipped,
)
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import (
    DeviceFigures,
    OutcomeRow,
    RankedFinding,
    Recording,
    RecordingNote,
    Report,
    Source,
    UsedSettings,
)
from traceadvisor.rules.base import Rule

_NOTHING_SET = UsedSettings()

MOST_TABLE_ROWS = 40
"""Kernels and operators beyond these take next to no time."""


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """All that a report says of one recording: a few megabytes at most, whatever the size of its trace."""

    recording: Recording
    notes: tuple[HealthNote, ...]
    outcomes: tuple[OutcomeRow, ...]
    """One a rule, in the order of the catalogue."""

    findings: tuple[RankedFinding, ...]
    """Folded, not yet ranked."""

    rank: RankRecording | None = None
    """For the comparison with other ranks; None where the recording does not say of which it is."""


def judge(facts: Facts, catalogue: Iterable[Rule] | None = None) -> Judgement:
    """Everything the rules have to say of one recording; the trace is not needed any more.

    Args:
        facts: of the recording.
        catalogue: the rules to run; all of them by default.
    """
    outcomes = tuple(
        OutcomeRow(rule.meta, (facts.recording_id,), _tried(rule, facts, run_rule(rule, facts)))
        for rule in (catalogue if catalogue is not None else all_rules())
    )
    findings = tuple(folded(facts, outcomes))
    found = (row.outcome.finding for row in outcomes if isinstance(row.outcome, Found) and row.rule.umbrella)
    recording = replace(recording_of(facts), replay=_replay_figures(facts, findings), umbrellas=tuple(found))
    return Judgement(recording, facts.notes, outcomes, findings, rank_recording(facts))


def _tried(rule: Rule, facts: Facts, outcome: RuleOutcome) -> RuleOutcome:
    """The outcome with the rule's popular fix replayed."""
    try:
        return tried(rule, facts, outcome)
    except Exception as error:  # noqa: BLE001  # as for a rule
        return Failed(f"{type(error).__name__}: {error}")


def _replay_figures(facts: Facts, findings: Iterable[RankedFinding]) -> ReplayFigures | None:
    """None where there is nothing to replay, or the replay fails: the rules that ask for it then say why."""
    what_ifs = [one for row in findings for one in row.finding.what_ifs]
    try:
        if facts.replay is None or facts.step_ns is None:
            return None
        return facts.replay.figures(facts.replay.joint_step_ns(what_ifs, facts.step_ns))
    except Exception:  # noqa: BLE001  # as for a rule
        return None


def assess(
    judgements: Sequence[Judgement],
    source: Source,
    health: Health,
    catalogue: Iterable[Rule] | None = None,
    settings: UsedSettings = _NOTHING_SET,
) -> Report:
    """The report on some recordings: their judgements side by side, what they found in one ranking.

    Args:
        judgements: one a recording.
        source: what they were read from.
        health: of the input: the events of all files, and notes on the input as a whole.
        catalogue: the rules that were run; all of them by default.
        settings: what the user set.
    """
    rules = tuple(catalogue if catalogue is not None else all_rules())
    compared = compare((one.rank for one in judgements if one.rank), rules)
    outcomes = side_by_side(zip(*(one.outcomes for one in judgements), strict=True), compared)
    recordings = {one.recording.id: one.recording for one in judgements}
    told = {(row.rule.id, recording_id) for row in compared for recording_id in row.recording_ids}
    alone = (
        row
        for one in judgements
        for row in one.findings
        if (row.finding.rule.id, one.recording.id) not in told  # by a comparison with other ranks
    )
    return Report(
        tool_version=__version__,
        source=source,
        health=_whole_health(judgements, health),
        health_notes=(
            *(RecordingNote(note, None) for note in health.notes),
            *(RecordingNote(note, one.recording.id) for one in judgements for note in one.notes),
        ),
        recordings=tuple(_with_cost(one.recording, settings.price) for one in judgements),
        findings=ranked(
            _with_worth(row, recordings[row.recording_ids[0]], settings.price)
            for row in (*alone, *_placed(compared, recordings))
        ),
        not_worth_doing=not_worth_doing(rules, outcomes, recordings.values()),
        outcomes=outcomes,
        settings=settings,
    )


def _placed(compared: Iterable[OutcomeRow], recordings: Mapping[str, Recording]) -> Iterator[RankedFinding]:
    """What was found in several ranks, as findings of all of them."""
    for row in compared:
        if isinstance(row.outcome, Found):
            steps_ns = [_step_ns(recordings[recording_id]) for recording_id in row.recording_ids]
            step_ns = max((step_ns for step_ns in steps_ns if step_ns), default=None)
            yield placed(row.outcome.finding, row.recording_ids, step_ns)


def _step_ns(recording: Recording) -> float | None:
    return recording.undisturbed_median_step_ns or recording.median_step_ns


def run_rule(rule: Rule, facts: Facts) -> RuleOutcome:
    """The outcome of one rule on one recording; whatever goes wrong in the rule stays in its outcome."""
    try:
        missing = facts.missing(rule.meta.needs)
        with output_aside(rule):
            outcome = Skipped(missing) if missing else rule.check(facts)
        wrong = _wrong(rule, outcome)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a rule's failure must not take the report with it
        return Failed(f"{type(error).__name__}: {error}")
    if wrong:
        return Failed(wrong)
    return Found(outcome) if isinstance(outcome, Finding) else outcome


def _wrong(rule: Rule, outcome: object) -> str | None:
    """What keeps an outcome from being folded, ranked and drawn: a rule may be anybody's; None where nothing does."""
    if not conforms(outcome, Finding | Clear | Skipped):
        return f"The rule gave a {type(outcome).__name__} that is none, or a part of it is of the wrong type."
    if isinstance(outcome, Finding) and (outcome.rule != rule.meta or not outcome.claims.is_valid):
        return "The rule gave a finding of another rule, or one that claims no set of spans."
    return None


def _figures(facts: Facts) -> DeviceFigures:
    figures = device_figures(facts.trace, facts.launches, facts.steps.kept_windows)
    rate = facts.device_work.rate
    if rate is None or not rate.is_whole:
        return figures
    return replace(figures, flops_per_s=rate.flops_per_s, peak_rate_share=rate.peak_share)


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
        figures=_figures(facts),
        timeline=step_timeline(facts.observation, facts.partition, step) if step else None,
        kernels=kernel_table(facts.trace, facts.launches, facts.steps)[:MOST_TABLE_ROWS],
        operators=operator_table(facts.trace, facts.launches, facts.tree, facts.steps)[:MOST_TABLE_ROWS],
        loader_kinds=facts.observation.loader.kinds if facts.observation.loader else (),
        captured=facts.run,
        recorded_wall_ns=facts.recorded_wall_ns,
        telemetry=facts.telemetry,
        rank_count=facts.rank_count,
        gpu_count=len(facts.device_indices) * facts.rank_count or None,
        joules_per_sample=facts.joules_per_sample,
        memory=facts.memory_figures,
        memory_over_time=memory_over_time(facts.trace, facts.device_index, facts.steps.steps),
    )


def _with_cost(recording: Recording, price: Price | None) -> Recording:
    return replace(recording, cost=_cost(recording, price)) if price else recording


def _with_worth(row: RankedFinding, recording: Recording, price: Price | None) -> RankedFinding:
    saving, cost = row.finding.saving, _cost(recording, price) if price else None
    if cost is None or not saving.expected_ns or not row.step_ns:
        return row
    return replace(row, worth=worth(cost, saving, row.step_ns))


def _cost(recording: Recording, price: Price) -> RunCost | None:
    """None without a device: the price is of those."""
    if recording.gpu_count is None:
        return None
    return run_cost(price, recording.gpu_count, recording.rank_count, recording.samples_per_s)


def _whole_health(judgements: Iterable[Judgement], health: Health) -> Health:
    """The input's health with the notes of its recordings."""
    notes = (*health.notes, *(note for one in judgements for note in one.notes))
    return replace(
        health, notes=tuple(dict.fromkeys(notes)), unusable=all(_is_unusable(one.recording) for one in judgements)
    )


def _is_unusable(recording: Recording) -> bool:
    """Whether nothing can be said of the length of a step."""
    return recording.mean_step_ns is None and recording.undisturbed_median_step_ns is None
