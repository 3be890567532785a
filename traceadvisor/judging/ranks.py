"""Compares the ranks of a run, after each recording was judged by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from traceadvisor.analysis.communication.collectives import collective_calls
from traceadvisor.analysis.communication.matching import matching
from traceadvisor.facts import Facts
from traceadvisor.frozen import frozen
from traceadvisor.judging.run_rule import Judged, run_rank_rule
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Found, RuleOutcome
from traceadvisor.model.location import Location
from traceadvisor.model.ranks import RankFigures
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import RankRule, Rule


@frozen(eq=False)
class RankRecording:
    """Figures of one rank's recording for a comparison of ranks."""

    recording_id: str
    run: str
    cycle: int
    """Position among the rank's recordings in the run."""

    figures: RankFigures
    world_size: int | None = None
    """Processes of the job."""


ORIGIN_ROWS = 40
"""Places and operators of each rank that are compared: the rest takes little time."""


def rank_recording(facts: Facts, *, is_alone: bool = False) -> RankRecording | None:
    """The figures of a recording for a comparison; None if its rank or its work is unknown or it has no steps.

    ``is_alone``: whether no other rank was recorded, so that the origins of its time are not needed.
    """
    origin, distributed = facts.trace.origin, facts.trace.distributed
    rank = distributed.rank if distributed and distributed.rank is not None else origin.rank
    if rank is None or facts.mean is None or facts.observation.is_unread:
        return None
    calls = collective_calls(facts.all_collectives, facts.trace, facts.steps)
    exposed = facts.partition.get(Category.COMMUNICATION, SpanSet.empty())
    figures = RankFigures(
        rank,
        calls,
        facts.mean,
        exposed,
        facts.settings.loader,
        facts.steps.kept[0].host_start_ns,
        *_code(facts, facts.steps.kept_windows - exposed, is_alone=is_alone),
        recorded_wait_ns=facts.per_step_ns(facts.recorded_waits & exposed & facts.steps.typical_windows),
    )
    world_size = distributed.world_size if distributed else None
    return RankRecording(facts.recording_id, origin.run, origin.cycle, figures, world_size)


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
    return places, {row.name: row.total_ns / found.step_count for row in found.operators.rows if row.name}


def compare(recordings: Iterable[RankRecording], rules: Iterable[Rule]) -> list[Judged]:
    """Run the rules that compare ranks: one outcome per rule and set of ranks recorded at the same time."""
    rank_rules = [rule for rule in rules if isinstance(rule, RankRule)]
    return [
        Judged(rule.meta, tuple(one.recording_id for one in ranks), _compared(rule, ranks))
        for ranks in _together(recordings)
        for rule in rank_rules
    ]


def _compared(rule: RankRule, ranks: Sequence[RankRecording]) -> RuleOutcome:
    """The outcome; a finding on a part of the ranks says so, because what is missing may be the cause."""
    outcome, size = run_rank_rule(rule, [one.figures for one in ranks]), ranks[0].world_size
    if not isinstance(outcome, Found) or size is None or size <= len(ranks):
        return outcome
    caveat = f"Only {len(ranks)} of {size} ranks were compared: a rank that is not among them may be later still."
    return Found(replace(outcome.finding, caveats=(*outcome.finding.caveats, caveat)))


def waits(recordings: Iterable[RankRecording]) -> dict[str, SpanSet]:
    """Time in which the collectives of each recording only wait for other ranks, where these were recorded, too."""
    found: dict[str, SpanSet] = {}
    for ranks in _together(recordings):
        if matched := matching([one.figures.calls for one in ranks]):
            found |= {one.recording_id: matched.waits(row) for row, one in enumerate(ranks)}
    return found


def _together(recordings: Iterable[RankRecording]) -> Iterator[tuple[RankRecording, ...]]:
    """Two or more ranks that were recorded at the same time, in order."""
    together: defaultdict[tuple[str, int, int | None], dict[int, RankRecording]] = defaultdict(dict)
    for recording in recordings:
        together[recording.run, recording.cycle, recording.world_size].setdefault(recording.figures.rank, recording)
    for by_rank in together.values():
        if len(by_rank) > 1:
            yield tuple(by_rank[rank] for rank in sorted(by_rank))


def side_by_side(judged: Iterable[tuple[Judged, ...]], compared: Sequence[Judged]) -> tuple[Judged, ...]:
    """The outcomes, grouped by rule. An outcome for several ranks replaces those for each rank."""
    taken = {(row.rule.id, recording_id) for row in compared for recording_id in row.recording_ids}
    return tuple(
        row
        for rows in judged
        for row in (
            *(row for row in compared if row.rule == rows[0].rule),
            *(row for row in rows if (row.rule.id, row.recording_ids[0]) not in taken),
        )
    )
