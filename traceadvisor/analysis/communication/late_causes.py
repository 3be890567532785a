"""The ranks that the others wait for, and what makes them late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import comb

import numpy as np

from traceadvisor.analysis.communication.late_ranks import MOST_WAITING, extra_place
from traceadvisor.analysis.communication.matching import Clocks, Matching
from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.breakdown import IDLE_CATEGORIES, Category
from traceadvisor.model.job import LateCause, Straggler
from traceadvisor.model.ranks import RankFigures

MOST_STRAGGLERS = 5
LEAST_CAUSED = 0.01
"""Share of the step that the others wait for a straggler."""

EXPLAINED = 0.25
"""Share of a delay that its cause explains at least."""

LOWER_CLOCK = 0.95
"""Share of the median clock of the other ranks, below which a GPU is throttled."""

BLOCK_VALUES = 500_000
"""Values of all ranks that are copied at a time: 4 MB. All of a large job do not fit into memory several times."""

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


class Delays:
    """Time by which each collective's last rank took longer than the median of the others; shape ``(n, ...)``.

    The last rank itself does not count for the median: of two ranks, it would halve the delay.
    """

    def __init__(self, ranks: Sequence[RankFigures], matched: Matching, clocks: Clocks) -> None:
        """Compare the time before each collective that all ranks describe."""
        last, duration_ns = matched.last, matched.duration_ns
        late_ns = middle_of_others(duration_ns, last) - duration_ns.min(axis=0)
        self.late_ns: Int64 = late_ns.round().astype(np.int64)
        self.extra_ns = np.zeros((last.size, len(_CATEGORIES)), np.int64)
        """Time per category."""

        self.start_ns = np.zeros(last.size, np.int64)
        """Later begin of the first recorded step, for its first collective."""

        for start, described in self._described(ranks, matched):
            here = last[start : start + described.shape[1]]
            own = described[here, np.arange(here.size)]
            self.extra_ns[start : start + here.size] = (own - middle_of_others(described, here)).round()
        if all(places[0] == 0 for places in matched.place):
            begins = np.array([one.begin_ns for one in ranks]) - clocks.offset_ns[:, 0]
            self.start_ns[0] = begins[last[0]] - np.median(np.delete(begins, last[0]))
        self._clocks = [one.sm_clock_mhz for one in ranks]
        self._last = last

    @staticmethod
    def _described(ranks: Sequence[RankFigures], matched: Matching) -> Iterator[tuple[int, Int64]]:
        """Time of each rank before each of the first collectives, by category: blocks, each after its begin."""
        tables = [one.calls.before_ns for one in ranks]
        known = [table for table in tables if table is not None]
        if len(known) < len(ranks):
            return
        pairs = list(zip(matched.place, known, strict=True))
        count = min(int((places < len(table)).sum()) for places, table in pairs)
        for block in _blocks(count, len(ranks) * len(_CATEGORIES)):
            yield block.start, np.stack([table[places[block]] for places, table in pairs])

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
        last = self._last[number]
        own, others = self._clocks[last], [clock for row, clock in enumerate(self._clocks) if clock and row != last]
        return bool(own and others and own < LOWER_CLOCK * float(np.median(others)))

    def longer(self, number: int) -> Mapping[Category, int]:
        """Categories that took the last rank longer, the longest first."""
        order = np.argsort(-self.extra_ns[number], kind="stable")[:3].tolist()
        return {_CATEGORIES[place]: ns for place in order if (ns := int(self.extra_ns[number][place])) > 0}


def middle_of_others(values: Int64, last: Int64) -> Float64:
    """Median over all ranks but one for each collective, shape ``(n, ...)``.

    ``values``: shape ``(ranks, n, ...)``. ``last``: the row that is left out, shape ``(n,)``.
    """
    middle = np.empty(values.shape[1:])
    for block in _blocks(last.size, values[:, :1].size):
        is_other = np.arange(values.shape[0]) != last[block, np.newaxis]
        others = np.moveaxis(values[:, block], 0, 1)[is_other]
        shape = len(is_other), values.shape[0] - 1, *values.shape[2:]
        middle[block] = np.median(others.reshape(shape), axis=1, overwrite_input=True)
    return middle


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Slices of collectives, for arrays with ``size`` values for each."""
    length = max(1, BLOCK_VALUES // max(size, 1))
    return (slice(start, min(start + length, count)) for start in range(0, count, length))


def stragglers(
    ranks: Sequence[RankFigures], matched: Matching, caused_ns: Float64, by_rank: Float64, delays: Delays
) -> Iterator[Straggler]:
    """Yield the ranks that the others wait for, the longest wait first, each with its causes.

    ``caused_ns``: of each collective. ``by_rank``: what each rank causes, per step.
    """
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
