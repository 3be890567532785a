"""Compare all ranks of a job: who waits for whom, and how much each category differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from traceadvisor.analysis.communication.late_causes import Delays, stragglers
from traceadvisor.analysis.communication.late_ranks import awaited_by_all, exposed_waits, lacks_cores, late_rank
from traceadvisor.analysis.communication.matching import Clocks, Matching, aligned, matching, other_steps
from traceadvisor.model.arrays import Float64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.communication import CollectiveKind
from traceadvisor.model.job import Job, Lanes, LateCollective, RankRow, Spread
from traceadvisor.model.ranks import RankFigures

MOST_COLLECTIVES = 40


def comparable(ranks: Sequence[RankFigures]) -> list[RankFigures]:
    """The ranks that recorded the same steps as most."""
    left_out = set(other_steps([one.calls for one in ranks]))
    return [one for place, one in enumerate(ranks) if place not in left_out]


def job_of(ranks: Sequence[RankFigures], ids: Mapping[int, str], run: str, cycle: int, world_size: int | None) -> Job:
    """The page's figures about some ranks.

    ``ranks``: two or more, in order. ``ids``: the recording of each rank.
    """
    alike = comparable(ranks)
    compared = {one.rank for one in alike}
    rows = {one.rank: _row(one, ids) for one in ranks}
    known = set(rows)
    job = Job(
        run,
        cycle,
        world_size,
        tuple(rows.values()),
        spread=dict(_spreads(ranks)),
        step_spread=_spread([(one.mean.duration_ns, one.rank) for one in ranks]),
        missing=tuple(rank for rank in range(world_size or 0) if rank not in known),
        other_steps=tuple(rank for rank in rows if rank not in compared),
    )
    matched = matching([one.calls for one in alike]) if len(alike) > 1 else None
    if matched is not None:
        job = _with_waits(job, alike, matched)
    return replace(job, in_full=_in_full(job.ranks))


def _row(one: RankFigures, ids: Mapping[int, str]) -> RankRow:
    return RankRow(
        one.rank, ids[one.rank], one.mean.duration_ns, dict(one.mean.parts_ns), sm_clock_mhz=one.sm_clock_mhz
    )


def _in_full(rows: Sequence[RankRow]) -> tuple[int, ...]:
    """The rank that the others wait for most, else the slowest; the median; and the fastest."""
    slowest = max(rows, key=lambda one: (one.caused_ns or 0.0, one.work_ns))
    rest = sorted((one for one in rows if one is not slowest), key=lambda one: -one.work_ns)
    return tuple(dict.fromkeys((slowest.rank, rest[(len(rest) - 1) // 2].rank, rest[-1].rank)))


def _spreads(ranks: Sequence[RankFigures]) -> Iterator[tuple[Category, Spread]]:
    for category in Category:
        values = [(ns, one.rank) for one in ranks if (ns := one.mean.parts_ns.get(category)) is not None]
        if any(ns for ns, _ in values):
            yield category, _spread(values)


def _spread(values: Iterable[tuple[float, int]]) -> Spread:
    values = sorted(values)
    (low_ns, low), (high_ns, high) = values[0], values[-1]
    return Spread(low_ns, low, float(np.median([ns for ns, _ in values])), high_ns, high)


def _with_waits(job: Job, ranks: Sequence[RankFigures], matched: Matching) -> Job:
    clocks, waits_ns, last = aligned(matched), exposed_waits(ranks, matched), matched.last
    per_step = 1 / matched.step_count
    caused_ns: Float64 = waits_ns.sum(axis=0) / np.float64(len(ranks) - 1)
    by_rank: Float64 = np.bincount(last, caused_ns, len(ranks)) * np.float64(per_step)
    errors_ns = np.quantile(clocks.apart_ns, 0.95, axis=1).round().astype(int).tolist()
    is_alone = last.size == 1
    found = {
        one.rank: (float(waits_ns[row].sum()) * per_step, float(by_rank[row]), int((last == row).sum()), errors_ns[row])
        for row, one in enumerate(ranks)
    }
    rows = tuple(
        replace(
            one,
            wait_ns=found[one.rank][0],
            caused_ns=found[one.rank][1],
            last_count=found[one.rank][2],
            clock_error_ns=None if is_alone else found[one.rank][3],
        )
        if one.rank in found
        else one
        for one in job.ranks
    )
    delays, late = Delays(ranks, matched, clocks), late_rank(ranks)
    return replace(
        job,
        ranks=rows,
        lacks_cores=late is not None and lacks_cores(ranks, late),
        recorded_wait_ns=min(one.recorded_wait_ns for one in ranks),
        awaited_rank=awaited_by_all(ranks),
        step_count=matched.step_count,
        collective_count=last.size,
        clock_error_ns=None if is_alone else int(np.quantile(clocks.apart_ns, 0.95)),
        waiting_ns=float(waits_ns.sum()) / len(ranks) * per_step,
        transfer_ns=float(matched.transfer_ns.sum()) * per_step,
        stragglers=tuple(stragglers(ranks, matched, caused_ns, by_rank, delays)),
        collectives=tuple(_collectives(ranks, matched, caused_ns, delays)),
        lanes=_lanes(ranks, matched, clocks, caused_ns),
    )


def _collectives(
    ranks: Sequence[RankFigures], matched: Matching, caused_ns: Float64, delays: Delays
) -> Iterator[LateCollective]:
    kinds, calls, places = list(CollectiveKind), ranks[0].calls, matched.place[0]
    last, transfer_ns = matched.last, matched.transfer_ns
    number = np.arange(matched.step.size) - np.searchsorted(matched.step, matched.step) + 1
    for each in np.argsort(-caused_ns, kind="stable")[:MOST_COLLECTIVES].tolist():
        yield LateCollective(
            int(matched.step[each]),
            int(number[each]),
            kinds[int(calls.kind[places[each]])],
            ranks[last[each]].rank,
            int(delays.late_ns[each]),
            float(caused_ns[each]),
            int(transfer_ns[each]),
            delays.cause(each),
            delays.longer(each),
        )


def _lanes(ranks: Sequence[RankFigures], matched: Matching, clocks: Clocks, caused_ns: Float64) -> Lanes:
    """The step with the median wait among those in which the rank waited for most causes the most."""
    steps, step = np.unique(matched.step, return_inverse=True)
    in_steps = np.zeros((len(ranks), steps.size))
    np.add.at(in_steps, (matched.last, step), caused_ns)
    latest = int(in_steps.sum(axis=1).argmax())
    candidates = np.flatnonzero(in_steps.argmax(axis=0) == latest)
    order = candidates[np.argsort(in_steps.sum(axis=0)[candidates], kind="stable")]
    chosen = int(order[order.size // 2])
    mine = np.flatnonzero(step == chosen)
    starts = matched.start_ns[:, mine] - clocks.offset_ns
    ends = starts + matched.duration_ns[:, mine]
    before = np.flatnonzero(step == chosen - 1)
    if before.size:
        begins = (matched.start_ns + matched.duration_ns)[:, before].max(axis=1) - clocks.offset_ns[:, 0]
    else:
        begins = np.array([one.begin_ns for one in ranks]) - clocks.offset_ns[:, 0]
    begins = np.minimum(begins, starts.min(axis=1))
    first = begins.min()
    return Lanes(
        int(steps[chosen]),
        begins - first,
        starts - first,
        ends - matched.transfer_ns[mine] - first,
        ends - first,
    )
