"""Compare all ranks of a job: aligned clocks, who is late and why, and how much each category differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import comb

import numpy as np

from traceadvisor.analysis.communication.late_ranks import MOST_WAITING, exposed_waits, extra_place
from traceadvisor.analysis.communication.matching import Matching, matching, other_steps
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.breakdown import IDLE_CATEGORIES, Category
from traceadvisor.model.communication import CollectiveKind
from traceadvisor.model.job import Job, Lanes, LateCause, LateCollective, RankRow, Spread, Straggler
from traceadvisor.model.ranks import RankFigures

MOST_STRAGGLERS = 5
LEAST_CAUSED = 0.01
"""Share of the step that the others wait for a straggler."""

MOST_COLLECTIVES = 40
EXPLAINED = 0.25
"""Share of a delay that its cause explains at least."""

LOWER_CLOCK = 0.95
"""Share of the median clock of all ranks, below which a GPU is throttled."""

CHANCE = 0.05
"""Probability that any rank is the latest in so many steps by chance, below which one is late for a reason."""

CAUSES: Mapping[LateCause, tuple[Category, ...]] = {
    LateCause.DATA: (Category.DATA_WAIT,),
    LateCause.COMPUTE: (Category.KERNEL, Category.FORWARD, Category.BACKWARD, Category.OPTIMIZER),
    LateCause.HOST: (*IDLE_CATEGORIES, Category.OTHER_HOST),
    LateCause.COPIES: (Category.H2D_COPY, Category.OTHER_COPY),
    LateCause.LINK: (Category.COMMUNICATION,),
}
_CATEGORIES = list(Category)


@frozen(eq=False)
class Clocks:
    """The clocks of some ranks, aligned by the ends of their collectives."""

    offset_ns: Int64
    """What each clock is ahead, shape ``(ranks, 1)``."""

    apart_ns: Int64
    """How far each end lies from the middle one, shape ``(ranks, n)``."""


def aligned(matched: Matching) -> Clocks:
    """Align clocks: a collective ends on all ranks at the same time."""
    ends = matched.start_ns + matched.duration_ns
    offset = np.median(ends - ends[0], axis=1, keepdims=True)
    middle = np.median(ends - offset, axis=0)
    offset = np.median(ends - middle, axis=1, keepdims=True).round().astype(np.int64)
    return Clocks(offset, np.abs(ends - offset - middle.round().astype(np.int64)))


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
    delays = Delays(ranks, matched, clocks)
    stragglers = tuple(_stragglers(ranks, matched, caused_ns, by_rank, delays))
    return replace(
        job,
        ranks=rows,
        step_count=matched.step_count,
        collective_count=last.size,
        clock_error_ns=None if is_alone else int(np.quantile(clocks.apart_ns, 0.95)),
        waiting_ns=float(waits_ns.sum()) / len(ranks) * per_step,
        transfer_ns=float(matched.transfer_ns.sum()) * per_step,
        stragglers=stragglers,
        collectives=tuple(_collectives(ranks, matched, caused_ns, delays)),
        lanes=_lanes(ranks, matched, clocks, caused_ns),
    )


class Delays:
    """Time by which each collective's last rank took longer than the median rank; arrays of shape ``(n, ...)``."""

    def __init__(self, ranks: Sequence[RankFigures], matched: Matching, clocks: Clocks) -> None:
        """Compare the time before each collective that all ranks describe."""
        last, duration_ns = matched.last, matched.duration_ns
        self.late_ns: Int64 = (np.median(duration_ns, axis=0) - duration_ns.min(axis=0)).round().astype(np.int64)
        self.extra_ns = np.zeros((last.size, len(_CATEGORIES)), np.int64)
        """Time per category."""

        self.start_ns = np.zeros(last.size, np.int64)
        """Later begin of the first recorded step, for its first collective."""

        described = self._described(ranks, matched)
        if described.size:
            middle = np.median(described, axis=0)
            own = described[last[: middle.shape[0]], np.arange(middle.shape[0])]
            self.extra_ns[: middle.shape[0]] = (own - middle).round()
        if all(places[0] == 0 for places in matched.place):
            begins = np.array([one.begin_ns for one in ranks]) - clocks.offset_ns[:, 0]
            self.start_ns[0] = begins[last[0]] - np.median(begins)
        self._clocks = [one.sm_clock_mhz for one in ranks]
        self._last = last

    @staticmethod
    def _described(ranks: Sequence[RankFigures], matched: Matching) -> Int64:
        """Time of each rank before each of the first collectives, by category."""
        tables = [one.calls.before_ns for one in ranks]
        known = [table for table in tables if table is not None]
        if len(known) < len(ranks):
            return np.empty(0, np.int64)
        count = min(int((places < len(table)).sum()) for places, table in zip(matched.place, known, strict=True))
        return np.stack([table[places[:count]] for places, table in zip(matched.place, known, strict=True)])

    def cause(self, number: int) -> LateCause:
        """The cause with the most extra time, if it explains enough of the delay."""
        extra = {
            cause: int(sum(self.extra_ns[number][_CATEGORIES.index(each)] for each in categories))
            for cause, categories in CAUSES.items()
        } | {LateCause.START: int(self.start_ns[number])}
        most = max(extra, key=lambda one: extra[one])
        if extra[most] <= 0 or extra[most] < EXPLAINED * self.late_ns[number]:
            return LateCause.UNKNOWN
        return LateCause.CLOCK if most is LateCause.COMPUTE and self._is_throttled(number) else most

    def _is_throttled(self, number: int) -> bool:
        known = [clock for clock in self._clocks if clock]
        own = self._clocks[self._last[number]]
        return bool(own and len(known) > 1 and own < LOWER_CLOCK * float(np.median(known)))

    def longer(self, number: int) -> Mapping[Category, int]:
        """Categories that took the last rank longer, the longest first."""
        order = np.argsort(-self.extra_ns[number], kind="stable")[:3].tolist()
        return {_CATEGORIES[place]: ns for place in order if (ns := int(self.extra_ns[number][place])) > 0}


def _stragglers(
    ranks: Sequence[RankFigures], matched: Matching, caused_ns: Float64, by_rank: Float64, delays: Delays
) -> Iterator[Straggler]:
    last, total_ns = matched.last, float(by_rank.sum())
    step = np.unique(matched.step, return_inverse=True)[1]
    in_steps = np.zeros((len(ranks), matched.step_count))
    np.add.at(in_steps, (last, step), caused_ns)
    main = np.where(in_steps.any(axis=0), in_steps.argmax(axis=0), -1)
    mean_ns = float(np.mean([one.mean.duration_ns for one in ranks]))
    for row in np.argsort(-by_rank, kind="stable")[:MOST_STRAGGLERS].tolist():
        if by_rank[row] < LEAST_CAUSED * mean_ns:
            return
        causes: dict[LateCause, float] = {}
        for number in np.flatnonzero(last == row).tolist():
            causes[delays.cause(number)] = causes.get(delays.cause(number), 0.0) + float(caused_ns[number])
        whole_ns = sum(causes.values())
        share, late_steps = float(by_rank[row]) / total_ns, int((main == row).sum())
        place = extra_place(ranks, row, float(by_rank[row]))
        yield Straggler(
            ranks[row].rank,
            float(by_rank[row]),
            share,
            late_steps,
            _is_persistent(late_steps, matched.step_count, len(ranks)),
            {one: ns / whole_ns for one, ns in sorted(causes.items(), key=lambda each: -each[1]) if ns},
            *(place or (None, None)),
        )


def _is_persistent(late_steps: int, steps: int, ranks: int) -> bool | None:
    """Whether a rank is the latest in most steps; None if that may be by chance."""
    if late_steps < MOST_WAITING * steps:
        return False
    one = 1 / ranks
    often = sum(
        comb(steps, times) * one**times * (1 - one) ** (steps - times) for times in range(late_steps, steps + 1)
    )
    return True if ranks * often < CHANCE else None


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
