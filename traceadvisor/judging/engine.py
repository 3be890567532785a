"""Runs the rules on recordings and builds the report from their outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from traceadvisor import __version__
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen, replace
from traceadvisor.judging.catalogue import all_rules, rule_texts, trace_rules
from traceadvisor.judging.memory_advice import advise
from traceadvisor.judging.popular_fixes import not_worth_doing
from traceadvisor.judging.ranking import ranked, with_severity
from traceadvisor.judging.ranks import RankRecording, compare, jobs, rank_recording, side_by_side
from traceadvisor.judging.recording import Description
from traceadvisor.judging.rows import explained_by_late_rank, in_rows
from traceadvisor.judging.run_rule import Judged, lawful_outcome
from traceadvisor.judging.worth import if_it_shortens
from traceadvisor.model.cost import Amounts, Price, RunCost, Worth
from traceadvisor.model.findings import Clear, Estimate, Failed, Finding, Found, RuleOutcome, Silenced, Skipped
from traceadvisor.model.health import Health, HealthNote
from traceadvisor.model.job import Job
from traceadvisor.model.report import (
    FoundFigures,
    OutcomeRow,
    RecordedFinding,
    Recording,
    RecordingNote,
    Report,
    Source,
    Umbrella,
    UsedSettings,
)
from traceadvisor.rules.base import Rule
from traceadvisor.system.executor import Aside

T = TypeVar("T")

Told = FoundFigures | Clear | Skipped | Failed
"""The outcome of a rule as a report tells it, without the finding."""

_NOTHING_SET = UsedSettings()


@frozen(eq=False)
class Judgement:
    """Everything that a report shows of one recording: at most a few megabytes, for traces of any size."""

    recording: Recording
    notes: tuple[HealthNote, ...]
    outcomes: Mapping[str, Told]
    """By rule, in the order of the catalogue."""

    findings: tuple[RecordedFinding, ...]
    """Folded, each ranked by what it saves after those above it."""

    silenced: tuple[Silenced, ...]
    """Findings and parts of them that laws took."""

    rank: RankRecording | None = None
    """For the comparison with other ranks; None if the rank is unknown."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent from another process, it shares what is equal: most rules say the same of most recordings."""
        return _received, (self.outcomes, self.recording, self.notes, self.findings, self.silenced, self.rank)


@lru_cache(1 << 12)
def _one(part: T) -> T:
    """Return one shared object for equal ones."""
    return part


def _received(
    outcomes: Mapping[str, Told], recording: Recording, notes: tuple[HealthNote, ...], *more: Any
) -> Judgement:
    return Judgement(recording, notes, {_one(rule_id): _one(told) for rule_id, told in outcomes.items()}, *more)


def judge(
    facts: Facts, catalogue: Iterable[Rule] | None = None, aside: Aside | None = None, *, in_detail: bool = True
) -> Judgement:
    """Run the rules on one recording. The result does not refer to the trace.

    Args:
        facts: those of the recording.
        catalogue: the rules to run; all of them by default.
        aside: another process, which computes tables and origins while this one runs the rules.
        in_detail: whether there are tables, the trace of a step, and the origins and evidence of findings.
    """
    description = Description(facts, aside, in_detail=in_detail)
    catalogue = all_rules() if catalogue is None else tuple(catalogue)
    rules = trace_rules(catalogue)
    lawful = [lawful_outcome(rule, facts) for rule in rules]
    outcomes = [if_it_shortens(rule, facts, outcome) for rule, (outcome, _) in zip(rules, lawful, strict=True)]
    ranking = ranked(facts, rules, outcomes)
    judged = zip(rules, outcomes, strict=True)
    found = (outcome.finding for rule, outcome in judged if rule.umbrella and isinstance(outcome, Found) and in_detail)
    umbrellas = tuple(Umbrella(one.rule, one.fix, one.evidence) for one in found)
    recording, findings = description.with_findings(ranking.rows)
    memory = recording.device_memory
    if memory is not None and facts.allocations is not None:
        advice = advise(facts.allocations, catalogue)
        memory = replace(memory, advice=(advice,))
    recording = replace(recording, replay=ranking.simulated, umbrellas=umbrellas, device_memory=memory)
    silenced = tuple(one for _, some in lawful for one in some)
    rank = rank_recording(facts, is_alone=aside is not None)
    told = {rule.meta.id: _told(outcome, in_detail=in_detail) for rule, outcome in zip(rules, outcomes, strict=True)}
    return Judgement(recording, (*facts.notes, *ranking.notes), told, findings, silenced, rank)


def assess(  # noqa: PLR0913, PLR0917  # all that a report is made of
    judgements: Sequence[Judgement],
    source: Source,
    health: Health,
    catalogue: Iterable[Rule] | None = None,
    settings: UsedSettings = _NOTHING_SET,
    ranks: Iterable[RankRecording] = (),
    *,
    with_outcomes: bool = True,
) -> Report:
    """The report on some recordings, with all findings in one ranking and one row per rule.

    Args:
        judgements: one per recording.
        source: the input that was read.
        health: event counts of all files, and notes on the whole input.
        catalogue: the rules that were run; all of them by default.
        settings: the settings of the user.
        ranks: figures of ranks that were not judged.
        with_outcomes: whether it has the outcomes of checks, beside the findings.
    """
    rules = trace_rules(catalogue)
    known = [*(one.rank for one in judgements if one.rank), *ranks]
    compared = compare(known, rules, {one.recording.id for one in judgements})
    judged = zip(*map(_judged, judgements), strict=True) if with_outcomes else ()
    outcomes = side_by_side(judged, compared)
    recordings = {one.recording.id: one.recording for one in judgements}
    in_comparison = {(row.rule_id, recording_id) for row in compared for recording_id in row.recording_ids}
    alone = [
        [row for row in one.findings if (row.finding.rule.id, one.recording.id) not in in_comparison]
        for one in judgements
    ]
    late, alone = explained_by_late_rank(_compared(compared, recordings), alone)
    of_ranks = [[row] for row in late]
    found = {row.rule_id for row in outcomes if row.is_found}
    return Report(
        tool_version=__version__,
        source=source,
        health=_whole_health(judgements, health),
        health_notes=(
            *(RecordingNote(note, None) for note in health.notes),
            *(RecordingNote(note, one.recording.id) for one in judgements for note in one.notes),
        ),
        recordings=tuple(_with_cost(one.recording, settings.price) for one in judgements),
        findings=tuple(
            replace(
                _with_worth(row, recordings[row.recording_ids[0]], settings.price),
                by_recording=tuple(
                    _with_worth(case, recordings[case.recording_ids[0]], settings.price) for case in row.by_recording
                ),
            )
            for row in in_rows((*alone, *of_ranks), recordings.values())
        ),
        not_worth_doing=not_worth_doing(rules, outcomes, recordings.values()),
        outcomes=_merged(outcomes, len(recordings)),
        settings=settings,
        rules=rule_texts(rules, found),
        silenced=tuple(one for judged in judgements for one in judged.silenced),
        jobs=tuple(replace(one, step_ns=_longest_step(_judged_ranks(one, recordings))) for one in jobs(known)),
    )


def _judged(judgement: Judgement) -> Iterator[Judged]:
    ids = (judgement.recording.id,)
    return (Judged(rule_id, ids, told) for rule_id, told in judgement.outcomes.items())


def _merged(judged: Sequence[Judged], recording_count: int) -> tuple[OutcomeRow, ...]:
    """One row for all recordings with the same outcome of a rule: most checks have the same one everywhere."""
    if recording_count == 1 and len({row.rule_id for row in judged}) == len(judged):  # nothing to compare
        return tuple(OutcomeRow(row.rule_id, (), _told(row.outcome)) for row in judged)
    alike: dict[tuple[str, Told], dict[str, None]] = {}
    same: dict[tuple[str, int], dict[str, None]] = {}
    for row in judged:
        place = row.rule_id, id(row.outcome)
        ids = same.get(place)
        if ids is None:  # to compare outcomes takes longer, and many recordings share them
            ids = same[place] = alike.setdefault((row.rule_id, _told(row.outcome)), {})
        ids.update(dict.fromkeys(row.recording_ids))
    return tuple(
        OutcomeRow(rule_id, () if len(ids) == recording_count else tuple(ids), outcome)
        for (rule_id, outcome), ids in alike.items()
    )


def _told(outcome: RuleOutcome | FoundFigures, *, in_detail: bool = True) -> Told:
    """The outcome without its finding, which is among those of the report."""
    return FoundFigures(outcome.finding.evidence if in_detail else ()) if isinstance(outcome, Found) else outcome


def _compared(compared: Iterable[Judged], recordings: Mapping[str, Recording]) -> Iterator[RecordedFinding]:
    """Findings from comparisons of ranks, each for all compared ranks."""
    for row in compared:
        if isinstance(row.outcome, Found):
            step_ns = _longest_step(recordings[recording_id] for recording_id in row.recording_ids)
            found = with_severity(_within(row.outcome.finding, step_ns), row.recording_ids, step_ns)
            yield replace(found, further_saving=found.finding.saving)  # no other fix is known to reach this time


def _longest_step(recordings: Iterable[Recording]) -> float | None:
    """The step that figures about several ranks are shares of; None if no step time is known."""
    return max((step_ns for one in recordings if (step_ns := one.step_now_ns)), default=None)


def _judged_ranks(job: Job, recordings: Mapping[str, Recording]) -> Iterator[Recording]:
    """The recordings of a job that are in the report."""
    return (recordings[row.recording_id] for row in job.ranks if row.recording_id in recordings)


def _within(finding: Finding, step_ns: float | None) -> Finding:
    """The finding with a saving of at most the step, or of what it is a share of: recorded steps may be longer."""
    most_ns = finding.whole_ns or step_ns
    return replace(finding, saving=finding.saving.up_to(most_ns)) if most_ns else finding


def _whole_health(judgements: Iterable[Judgement], health: Health) -> Health:
    notes = (*health.notes, *(note for one in judgements for note in one.notes))
    return replace(
        health,
        notes=tuple(dict.fromkeys(notes)),
        unusable=bool(judgements) and all(_is_unusable(one.recording) for one in judgements),
    )


def _is_unusable(recording: Recording) -> bool:
    """Whether no step time is known."""
    return recording.mean_step_ns is None and recording.undisturbed_median_step_ns is None


_Row = TypeVar("_Row", bound=RecordedFinding)

_SECONDS_PER_HOUR = 3600
_MILLION = 1_000_000


def _with_cost(recording: Recording, price: Price | None) -> Recording:
    return replace(recording, cost=_cost(recording, price)) if price else recording


def _with_worth(row: _Row, recording: Recording, price: Price | None) -> _Row:
    """The finding with its saving in money, if a price is set and there is a saving."""
    saving, cost = row.finding.saving, _cost(recording, price) if price else None
    if cost is None or not saving.expected_ns or not row.step_ns:
        return row
    return replace(row, worth=worth(cost, saving, row.step_ns))


def _cost(recording: Recording, price: Price) -> RunCost | None:
    """The cost of the run; None without a GPU, because the price is per GPU."""
    if recording.gpu_count is None:
        return None
    return run_cost(price, recording.gpu_count, recording.rank_count, recording.samples_per_s)


def run_cost(price: Price, gpu_count: int, rank_count: int, rank_samples_per_s: float | None) -> RunCost:
    """The cost of a run, assuming that all ranks train at the speed of this one."""
    per_million = None
    if rank_samples_per_s:
        hours = _MILLION / (rank_samples_per_s * rank_count) / _SECONDS_PER_HOUR
        per_million = price.per_gpu_hour * gpu_count * hours
    return RunCost(price, gpu_count, per_million)


def worth(cost: RunCost, saving: Estimate, step_ns: float) -> Worth:
    """A saving in money: its share of the step, applied to the cost."""
    return Worth(
        cost.price.currency,
        _amounts(cost.per_hour, saving, step_ns),
        None if cost.per_million_samples is None else _amounts(cost.per_million_samples, saving, step_ns),
    )


def _amounts(whole: float, saving: Estimate, step_ns: float) -> Amounts:
    low, expected, high = (
        whole * min(part / step_ns, 1.0) for part in (saving.low_ns, saving.expected_ns, saving.high_ns)
    )
    return Amounts(low, expected, high)
