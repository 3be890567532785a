"""Find the rank that the others wait for inside collectives, and its extra time by category."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from traceadvisor.analysis.communication.matching import Matching, matching
from traceadvisor.analysis.operators.names import rows_named
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.findings import FEWEST_STEPS
from traceadvisor.model.location import Location, PlaceKind
from traceadvisor.model.ranks import RankFigures
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace
from traceadvisor.statistics import share_interval

MOST_WAITING = 0.6
"""Share of all waiting for late ranks, from which one rank is the cause. It is lower if ranks take turns."""

NO_MATCH = "No step has matching collectives on all ranks: record the same steps on each rank."
NOT_REPLAYED = "each rank is simulated alone, and after the fix another rank may be late"

BESIDE_OTHERS = (
    "Other programs used the CPU, so any rank may be late, whatever its own work. Repeat on an idle machine."
)

ON_CPU = frozenset({Category.FORWARD, Category.BACKWARD, Category.OPTIMIZER, Category.OTHER_HOST})
"""Categories that take longer on a rank without a GPU when it lacks a core."""

SPREAD_SHARE = 0.25
"""Extra time in the second of these categories, relative to the first, from which all take longer: a rank without a
core of its own is slower in everything."""

MOST_BY_CORES = 0.25
"""Share of the step by which a rank that is slower in everything may be late because it lacked a core: 0.14 in a job of
two equal ranks beside other programs."""

EXPLAINED_PART, ELSEWHERE_PART = 0.4, 0.1
"""Shares of the wait and of a line's time on the late rank, for a line that explains the wait and only runs there."""

LEAST_PART = 0.25
"""Share of the wait that a place explains at least. Ranks differ by less in any code."""

_WAIT = "Notify_Wait"
"""A step of a collective on an Ascend device that waits for one rank."""

_FEWEST_RANKS = 4
"""In a smaller group, a ring of ranks looks like one in which each waits for all others."""

_Named = TypeVar("_Named")
_ByKey = dict[Hashable, tuple[_Named, float]]
"""By a key that is the same on all ranks: what it stands for, and its time per step."""


@frozen
class LateRank:
    """The rank that makes the others wait longest."""

    rank: int
    caused_ns: float
    """Wait of each other rank for this one, mean per step."""

    share_of_waiting: float
    """Share of all waiting for late ranks that this rank causes, 0..1."""

    waiting_ns: float
    """Wait of a rank for any other, mean per step."""

    last_count: int
    """Collectives that this rank enters last."""

    count: int
    """All compared collectives."""

    transfer_ns: float
    """The longest that the transfer of all collectives can take, mean per step."""

    least_share: float
    """Lower end of the 95% interval of that share, with steps as independent samples; 1 with one or two steps."""

    chance_share: float
    """Share of a rank that is late by chance only."""

    step_ns: float
    """Mean step of all ranks."""

    longer: tuple[tuple[Category, float], ...]
    """Categories longer than the others' mean, with the extra nanoseconds per step; longest first."""

    late_start_ns: float
    """Time by which it begins the first compared step after the others, on the clock of a collective's end, divided by
    the number of steps: what it did before was not recorded."""

    place: tuple[Location, float] | None
    """The line of the user's code that takes it longest beyond the others' mean, and that time per step; the function
    if several of its lines share the time. None if none takes :data:`LEAST_PART` of the wait."""

    is_only_here: bool
    """Whether that line explains :data:`EXPLAINED_PART` of the wait, and takes the others next to no time."""

    operator: tuple[str, float] | None
    """The same for operators."""

    step_count: int
    """Compared steps."""

    @property
    def most_saved_ns(self) -> float:
        """The most that the step becomes shorter without the delay, mean per step.

        Others wait less than a line takes longer where the profiler slows them down while the late rank sleeps.
        """
        return max(self.caused_ns, self.place[1] if self.place else 0.0)

    @property
    def is_sure(self) -> bool:
        """Whether chance does not explain how much of the waiting this rank causes."""
        return self.least_share > self.chance_share

    @property
    def is_named(self) -> bool:
        """Whether this rank, and not chance, is the cause."""
        return self.is_sure or self.is_only_here


def late_rank(ranks: Sequence[RankFigures]) -> LateRank | None:
    """The rank that the others wait for most; None if no step has matching collectives on all ranks.

    Only waits count during which the others run nothing else. Concurrent collectives count as one wait.
    """
    matched = matching([one.calls for one in ranks]) if len(ranks) > 1 else None
    if matched is None:
        return None
    last = matched.last
    caused_ns = np.bincount(last, exposed_waits(ranks, matched).sum(axis=0), len(ranks)) / (len(ranks) - 1)
    late = int(caused_ns.argmax())
    total_ns = float(caused_ns.sum())
    others = [one for one in ranks if one is not ranks[late]]
    least_ns = LEAST_PART * float(caused_ns[late]) / matched.step_count
    place = extra_place(ranks, late, float(caused_ns[late]) / matched.step_count)
    return LateRank(
        ranks[late].rank,
        float(caused_ns[late]) / matched.step_count,
        float(caused_ns[late]) / total_ns if total_ns else 0.0,
        total_ns * (len(ranks) - 1) / len(ranks) / matched.step_count,
        int((last == late).sum()),
        last.size,
        float(matched.transfer_ns.sum()) / matched.step_count,
        _least_share(matched, late),
        1 / len(ranks),
        float(np.mean([one.mean.duration_ns for one in ranks])),
        _longer(ranks[late], others),
        _late_start(matched, [one.begin_ns for one in ranks], late) / matched.step_count,
        place,
        place is not None and _is_only_here(place, ranks[late], float(caused_ns[late]) / matched.step_count),
        _most_extra(_by_operator(ranks[late]), [_by_operator(one) for one in others], least_ns),
        matched.step_count,
    )


def lacks_cores(ranks: Sequence[RankFigures], late: LateRank) -> bool:
    """Whether a rank may be late because other programs used its cores: nothing that only it does explains it.

    A rank that several steps show to be late in one kind of work, or by much, is late for a reason of its own, be it
    the cores that it runs on. Not if its optimizer is slow as well, whose work is the same on all ranks.
    """
    computes = not late.longer or late.longer[0][0] in ON_CPU
    slow = [category for category, ns in late.longer if category in ON_CPU and ns >= SPREAD_SHARE * late.longer[0][1]]
    is_little = late.caused_ns < MOST_BY_CORES * late.step_ns
    is_by_cores = len(slow) > 1 and (is_little or Category.OPTIMIZER in slow)
    is_shown = late.is_only_here or (late.is_sure and late.step_count >= FEWEST_STEPS and not is_by_cores)
    return computes and not is_shown and any(one.lacked_cores for one in ranks)


def exposed_waits(ranks: Sequence[RankFigures], matched: Matching) -> Int64:
    """Exposed wait of each rank in each collective, shape ``(ranks, n)``; concurrent ones count once, for the first."""
    found = np.zeros_like(matched.start_ns)
    for row, (one, starts, waits) in enumerate(zip(ranks, matched.start_ns, matched.wait_ns, strict=True)):
        order = np.argsort(starts, kind="stable")
        ends = (starts + waits)[order]
        begins = np.maximum(starts[order], np.append(starts[order[:1]], np.maximum.accumulate(ends)[:-1]))
        ends = np.maximum(begins, ends)
        found[row, order] = one.exposed.measure_in(begins, ends)
    return found


def _longer(late: RankFigures, others: Sequence[RankFigures]) -> tuple[tuple[Category, float], ...]:
    """Categories in which the late rank takes longer.

    Communication is excluded: the late rank has less of it. Unknown time is excluded: it is no cause.
    """
    excess = [
        (category, own_ns - float(np.mean([other.mean.parts_ns.get(category) or 0.0 for other in others])))
        for category, own_ns in late.mean.parts_ns.items()
        if own_ns is not None and category not in (Category.COMMUNICATION, Category.IDLE_UNKNOWN)
    ]
    return tuple(sorted((pair for pair in excess if pair[1] > 0), key=lambda pair: -pair[1]))


def _least_share(matched: Matching, late: int) -> float:
    waits_ns, step = matched.wait_ns.sum(axis=0), np.unique(matched.step, return_inverse=True)[1]
    of_steps = np.bincount(step, weights=waits_ns)
    if of_steps.size < FEWEST_STEPS or not of_steps.any():
        return 1.0
    share = float(waits_ns[matched.last == late].sum() / waits_ns.sum())
    effective_count = float(of_steps.sum() ** 2 / (of_steps**2).sum())
    return share_interval(share, effective_count)[0]


def _is_only_here(place: tuple[Location, float], late: RankFigures, caused_ns: float) -> bool:
    own_ns = _by_place(late)[_key(place[0])][1]
    return place[1] >= EXPLAINED_PART * caused_ns and place[1] >= (1 - ELSEWHERE_PART) * own_ns


def _late_start(matched: Matching, begins_ns: Sequence[int], late: int) -> float:
    """Time by which the late rank begins after the mean of the others, seen from the end of the first collective."""
    ends_ns = matched.start_ns[:, 0] + matched.duration_ns[:, 0]
    leads_ns = ends_ns - np.array(begins_ns)
    return max(float(np.delete(leads_ns, late).mean() - leads_ns[late]), 0.0)


def _most_extra(late: _ByKey[_Named], others: Sequence[_ByKey[_Named]], least_ns: float) -> tuple[_Named, float] | None:
    """The category that takes the late rank longest beyond the others' mean, and that time per step; None if short."""
    extra = [
        (named, own_ns - float(np.mean([other[key][1] if key in other else 0.0 for other in others])))
        for key, (named, own_ns) in late.items()
    ]
    most = max(extra, key=lambda one: one[1], default=None)
    return most if most and most[1] >= max(least_ns, 1.0) else None


def extra_place(ranks: Sequence[RankFigures], row: int, caused_ns: float) -> tuple[Location, float] | None:
    """The place that takes a rank longest beyond the others' mean, and that time per step; None if it is no cause."""
    others = [_by_place(one) for place, one in enumerate(ranks) if place != row]
    return _most_extra(_by_place(ranks[row]), others, LEAST_PART * caused_ns)


def _by_place(rank: RankFigures) -> _ByKey[Location]:
    """Time by the user's function and the function that it waits for: lines may be known on one rank only."""
    lines: defaultdict[Hashable, list[tuple[Location, float]]] = defaultdict(list)
    for place, time_ns in rank.places:
        lines[_key(place)].append((place, time_ns))
    return {key: (_line_or_function(found), sum(time_ns for _, time_ns in found)) for key, found in lines.items()}


def _key(place: Location) -> Hashable:
    return place.file, place.function, place.owner.function if place.owner else None


def _line_or_function(places: Sequence[tuple[Location, float]]) -> Location:
    """The line of one function with nearly all of its time; the function if several lines share it."""
    times_ns: defaultdict[Location, float] = defaultdict(float)
    for place, time_ns in places:
        times_ns[place] += time_ns
    most = max(times_ns, key=lambda one: times_ns[one])  # the line alone: places are equal whatever their owner
    if times_ns[most] >= (1 - ELSEWHERE_PART) * sum(times_ns.values()):
        return most
    samples = sum(place.samples or 0 for place, _ in places) or None
    return replace(most, kind=PlaceKind.FUNCTION_START, samples=samples)


def _by_operator(rank: RankFigures) -> _ByKey[str]:
    return {name: (name, time_ns) for name, time_ns in rank.operators.items()}


def awaited_rank(trace: Trace, waits: SpanSet, own_rank: int | None) -> int | None:
    """Return the rank that most of some recorded waits are for; None if it is uncertain.

    A rank that waits for some ranks only, as in a ring, does not see which one is late: its neighbor may wait itself.

    Args:
        trace: the recording.
        waits: time in which its collectives transfer nothing.
        own_rank: its rank in the job. Steps that number it otherwise number ranks within a group.
    """
    rows = rows_named(trace, Kind.OTHER, _WAIT.__eq__)
    peers, own = (one.at(rows, np.int64(NONE)) for one in (trace.details.peer_rank, trace.details.own_rank))
    ranks = {own_rank, *peers.tolist()}
    if len(ranks) < _FEWEST_RANKS or ranks != set(range(len(ranks))) or (own != own_rank).any():
        return None
    events = trace.events
    waited_ns = events.time_in(waits, rows)
    sums = np.bincount(peers, waited_ns)
    most = int(sums.argmax())
    covered_ns = (events.spans(rows[peers == most]) & waits).total_ns
    is_most = sums[most] >= MOST_WAITING * sums.sum() and covered_ns >= MOST_WAITING * waits.total_ns
    return most if waits and is_most else None


def awaited_by_all(ranks: Sequence[RankFigures]) -> int | None:
    """The rank that all of some ranks wait for most, if it is not among them; None if they differ."""
    named = {one.awaited_rank for one in ranks}
    return named.pop() if len(named) == 1 and not named & {one.rank for one in ranks} else None
