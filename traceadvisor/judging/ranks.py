"""Compares the ranks of a run, after each recording was judged by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.communication.collectives import collective_calls
from traceadvisor.analysis.communication.gradients import reduces_with_all
from traceadvisor.analysis.communication.job import job_of
from traceadvisor.analysis.communication.matching import matching, other_steps
from traceadvisor.analysis.communication.uneven_work import step_work
from traceadvisor.analysis.recording_health import is_busy
from traceadvisor.analysis.sampled.run_lines import sampled_places
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.judging.run_rule import Judged, run_rank_rule
from traceadvisor.model.breakdown import Category
from traceadvisor.model.communication import Message, Purpose
from traceadvisor.model.findings import Found, RuleOutcome
from traceadvisor.model.job import Job
from traceadvisor.model.location import Location
from traceadvisor.model.ranks import RankFigures, RankFile
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import RankRule, Rule


@frozen(eq=False)
class RankRecording:
    """Figures of one rank's recording for a comparison of ranks."""

    recording_id: str
    file: RankFile
    figures: RankFigures


MOST_IN_FULL = 8
"""Ranks of a job that are all judged; of more, the slowest, the median and the fastest."""

ORIGIN_ROWS = 40
"""Places and operators of each rank that are compared: the rest takes little time."""


MOST_VALUES = 8
"""Elements of a message that is no tensor of a model."""

MOST_SPANS = 1000
"""Spans of exposed communication of each rank."""


def rank_recording(facts: Facts, *, is_alone: bool = False) -> RankRecording | None:
    """The figures of a recording for a comparison; None if its rank or its work is unknown or it has no steps.

    ``is_alone``: whether no other rank was recorded, so that the origins of its time are not needed.
    """
    origin, distributed, rank = facts.trace.origin, facts.trace.distributed, facts.rank
    if rank is None or facts.mean is None or facts.observation.is_unread:
        return None
    calls = collective_calls(facts.all_collectives, facts.trace, facts.steps, facts.partition)
    exposed = facts.partition.get(Category.COMMUNICATION, SpanSet.empty())
    world_size = distributed.world_size if distributed else None
    clocks = [one.mean_sm_clock_mhz for one in facts.run.telemetry.devices] if facts.run.telemetry else []
    figures = RankFigures(
        rank,
        calls,
        facts.mean,
        _longest(exposed & SpanSet.union_of(calls.start_ns, calls.start_ns + calls.duration_ns)),
        facts.settings.loader,
        facts.steps.kept[0].host_start_ns,
        *_code(facts, facts.steps.kept_windows - exposed, is_alone=is_alone),
        recorded_wait_ns=facts.per_step_ns(facts.exposed_recorded_waits),
        awaited_rank=facts.awaited_rank,
        sm_clock_mhz=clocks[0] if len(clocks) == 1 else None,
        step_ns=facts.step_ns,
        sends_values_only=all(map(_is_value, facts.all_collectives.purposes, facts.all_collectives.messages)),
        work={} if is_alone else step_work(facts.trace, facts.device_work.calls, facts.steps.kept),
        shares_gradients=reduces_with_all(facts.all_collectives, world_size),
        lacked_cores=not facts.observation.has_device and is_busy(facts.run.telemetry, facts.run.host_cores),
    )
    file = RankFile(origin.path, origin.run, origin.cycle, rank, world_size, facts.recorded_wall_ns)
    return RankRecording(facts.recording_id, file, figures)


def _is_value(purpose: Purpose, message: Message | None) -> bool:
    """Whether a collective is a barrier or sends a few values, too few for gradients."""
    is_small = message is not None and message.in_elements is not None and message.in_elements <= MOST_VALUES
    return purpose is Purpose.BARRIER or (purpose is Purpose.BOOKKEEPING and is_small)


def _longest(spans: SpanSet) -> SpanSet:
    """The longest spans, in order: those left out take next to no time."""
    chosen = np.sort(np.argsort(spans.starts_ns - spans.ends_ns, kind="stable")[:MOST_SPANS])
    return SpanSet(spans.starts_ns[chosen], spans.ends_ns[chosen])


def _code(
    facts: Facts, spans: SpanSet, *, is_alone: bool
) -> tuple[tuple[tuple[Location, float], ...], dict[str, float]]:
    """The places in the code and the operators that some time belongs to, with their time per step."""
    if is_alone:
        return (), {}
    found, exact = facts.attribution.origins(spans, len(facts.steps.kept), ORIGIN_ROWS), facts.run.exact_lines.exact
    places = tuple(
        (exact(replace(place, owner=row.owner)), row.total_ns / found.step_count)
        for row in (found.stacks.rows if found.stacks else ())
        if (place := row.inner or row.line)
    )
    if found.stacks is None and facts.run.stack_samples and facts.step_ns:
        places = tuple(sampled_places(facts.run.stack_samples, facts.step_ns, ORIGIN_ROWS))
    return places, {row.name: row.total_ns / found.step_count for row in found.operators.rows if row.name}


def compare(recordings: Iterable[RankRecording], rules: Iterable[Rule], judged: Container[str]) -> list[Judged]:
    """Run the rules that compare ranks: one outcome per rule and set of ranks recorded at the same time.

    ``judged``: ids of the recordings in the report.
    """
    rank_rules = [rule for rule in rules if isinstance(rule, RankRule)]
    return [
        Judged(rule.meta.id, ids, _compared(rule, _alike(ranks), ranks[0].file.world_size))
        for ranks in _together(recordings)
        if (ids := tuple(one.recording_id for one in ranks if one.recording_id in judged))
        for rule in rank_rules
    ]


def _compared(rule: RankRule, ranks: Sequence[RankRecording], size: int | None) -> RuleOutcome:
    """The outcome; a finding on a part of the ranks says so, because what is missing may be the cause."""
    outcome = run_rank_rule(rule, [one.figures for one in ranks])
    if not isinstance(outcome, Found) or size is None or size <= len(ranks):
        return outcome
    caveat = f"Only {len(ranks)} of {size} ranks were compared: a rank that is not among them may be later still."
    return Found(replace(outcome.finding, caveats=(*outcome.finding.caveats, caveat)))


def _alike(ranks: Sequence[RankRecording]) -> Sequence[RankRecording]:
    """The ranks that recorded the same steps as most; all ranks, if fewer than two did."""
    left_out = set(other_steps([one.figures.calls for one in ranks]))
    alike = [one for place, one in enumerate(ranks) if place not in left_out]
    return alike if len(alike) > 1 else ranks


def waits(recordings: Iterable[RankRecording]) -> dict[str, SpanSet]:
    """Time in which the collectives of each recording only wait for other ranks, where these were recorded, too."""
    found: dict[str, SpanSet] = {}
    for ranks in map(_alike, _together(recordings)):
        if matched := matching([one.figures.calls for one in ranks]):
            found |= {one.recording_id: matched.waits(row) for row, one in enumerate(ranks)}
    return found


def jobs(recordings: Iterable[RankRecording]) -> Iterator[Job]:
    """The figures about all ranks that were recorded at the same time."""
    for ranks in _together(recordings):
        ids, file = {one.figures.rank: one.recording_id for one in ranks}, ranks[0].file
        yield job_of([one.figures for one in ranks], ids, file.run, file.cycle, file.world_size)


def in_full(recordings: Sequence[RankRecording]) -> set[str]:
    """Ids of the recordings to judge: of many ranks three, else all."""
    left_out: set[str] = set()
    for job in jobs(recordings):
        if len(job.ranks) > MOST_IN_FULL:
            judged = {one.recording_id for one in job.ranks if one.rank in job.in_full}
            moment = job.run, job.cycle, job.world_size
            left_out |= {one.recording_id for one in recordings if _moment(one) == moment} - judged
    return {one.recording_id for one in recordings} - left_out


def _moment(one: RankRecording) -> tuple[str, int, int | None]:
    return one.file.run, one.file.cycle, one.file.world_size


def _together(recordings: Iterable[RankRecording]) -> Iterator[tuple[RankRecording, ...]]:
    """Two or more ranks that were recorded at the same time, in order."""
    together: defaultdict[tuple[str, int, int | None], dict[int, RankRecording]] = defaultdict(dict)
    for one in recordings:
        together[_moment(one)].setdefault(one.figures.rank, one)
    for by_rank in together.values():
        if len(by_rank) > 1:
            yield tuple(by_rank[rank] for rank in sorted(by_rank))


def side_by_side(judged: Iterable[tuple[Judged, ...]], compared: Sequence[Judged]) -> tuple[Judged, ...]:
    """The outcomes, grouped by rule. An outcome for several ranks replaces those for each rank."""
    if not compared:
        return tuple(row for rows in judged for row in rows)
    taken = {(row.rule_id, recording_id) for row in compared for recording_id in row.recording_ids}
    return tuple(
        row
        for rows in judged
        for row in (
            *(row for row in compared if row.rule_id == rows[0].rule_id),
            *(row for row in rows if (row.rule_id, row.recording_ids[0]) not in taken),
        )
    )
