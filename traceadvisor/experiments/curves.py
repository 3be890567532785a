"""Curves over an axis: the ratio of each value to the base, the knee, and the plateau."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log, log1p
from statistics import fmean, stdev
from typing import TypeAlias

from traceadvisor.experiments.journal import Round
from traceadvisor.experiments.plan import AS_IT_IS, SAME_AGAIN, Plan
from traceadvisor.experiments.settings import PATCH, Settings
from traceadvisor.frozen import frozen
from traceadvisor.model.verdict import BUSY_SHARE, NO_DIFFERENCE, Verdict
from traceadvisor.statistics import FEWEST_ROUNDS, Comparison, compare, student_t

NEAR_THE_PEAK = NO_DIFFERENCE
"""A value within this share of the best one is as good."""

Point: TypeAlias = Mapping[tuple[str, int], float]
"""Logarithm of the ratio to the base, by experiment and round."""


@frozen
class Knee:
    """The smallest value that is as good as the best."""

    value: int
    low: int
    """The knee may be at this value or higher..."""

    high: int
    """...and at this one or lower."""

    best: int


def points(rounds: Sequence[Round]) -> dict[str, Point]:
    """For each arm, the logarithm of its time per sample over that of the base, by round."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for number, row in enumerate(rounds):
        base = (log(row.seconds[AS_IT_IS]) + log(row.seconds[SAME_AGAIN])) / 2
        for arm, seconds in row.seconds.items():
            found.setdefault(arm, {})[row.experiment, number] = log(seconds) - base
    return dict(found)


def compared(rounds: Sequence[Round], arm: str) -> Comparison | None:
    """An arm compared with the base over the rounds that have it, beside the noise of all; None without any."""
    return _compared([row.seconds for row in rounds], arm)


def compared_cpu(rounds: Sequence[Round], arm: str) -> Comparison | None:
    """The same of the CPU time of the training process; None without any."""
    return _compared([row.cpu_s for row in rounds if {AS_IT_IS, SAME_AGAIN} <= row.cpu_s.keys()], arm)


def _compared(rounds: Sequence[Mapping[str, float]], arm: str) -> Comparison | None:
    mine = [row for row in rounds if arm in row]
    if not mine:
        return None
    others = [row[SAME_AGAIN] / row[AS_IT_IS] for row in rounds if arm not in row]
    own, again, changed = ([row[name] for row in mine] for name in (AS_IT_IS, SAME_AGAIN, arm))
    return compare(own, again, changed, others)


def are_enough(plan: Plan, rounds: Sequence[Round], arms: Mapping[str, Settings]) -> bool:
    """Whether no more rounds are needed, whatever time is left.

    Verdicts are looked at with twice as many rounds each time: looks after each round find differences by chance.
    """
    count = len(rounds)
    if count >= plan.most_rounds and not plan.until_decided:
        return True
    times, rest = divmod(count, plan.most_rounds)
    if not rest and times.bit_count() == 1 and _are_decided(rounds, arms):
        return True
    return count >= FEWEST_ROUNDS and are_precise(rounds, arms)


def _are_decided(rounds: Sequence[Round], arms: Iterable[str]) -> bool:
    found = (compared(rounds, arm) for arm in arms)
    return all(one is not None and one.verdict is not Verdict.INCONCLUSIVE for one in found)


def are_precise(rounds: Sequence[Round], arms: Mapping[str, Settings]) -> bool:
    """Whether the rounds would show any change that matters; the size of an effect counts nothing.

    On a busy machine the CPU time decides about arms that it tells something about, as it does in the verdict.
    """
    is_busy = (others_share(rounds) or 0.0) >= BUSY_SHARE

    def witness(arm: str) -> Comparison | None:
        has_cpu = all({arm, AS_IT_IS, SAME_AGAIN} <= row.cpu_s.keys() for row in rounds if arm in row.seconds)
        by_cpu = is_busy and has_cpu and tells_by_cpu(arms[arm])
        return compared_cpu(rounds, arm) if by_cpu else compared(rounds, arm)

    results = map(witness, arms)
    return all(one is not None and one.smallest_visible <= NO_DIFFERENCE for one in results)


def others_share(rounds: Iterable[Round]) -> float | None:
    """Mean share of the machine's cores that other programs kept busy; None if unknown."""
    found = [share for row in rounds for share in row.others.values()]
    return fmean(found) if found else None


def tells_by_cpu(settings: Settings) -> bool:
    """Whether the CPU time of the training process shows a change: settings of the loader move it elsewhere."""
    return not settings.of_loader().without(PATCH)


def noise(found: Mapping[str, Point]) -> float:
    """The largest difference of the base and the same again in a round: a logarithm, without its sign."""
    return max((2 * abs(one) for one in found.get(SAME_AGAIN, {}).values()), default=0.0)  # a point is from the middle


def knee(curve: Mapping[int, Point], noise: float = 0.0) -> Knee | None:
    """The smallest value within 3% of the best; None with fewer than five rounds of every value.

    ``noise``: by how much the base differs from itself. Values that differ by less cannot be told apart.
    """
    curve = {value: point for value, point in sorted(curve.items()) if len(point) >= FEWEST_ROUNDS}
    if not curve:
        return None
    best = min(curve, key=lambda value: fmean(curve[value].values()))
    limit = log1p(NEAR_THE_PEAK)
    against = {value: _apart(curve[value], curve[best], noise) for value in curve if value < best}
    against[best] = (0.0, 0.0)
    value = min(value for value, (apart, _) in against.items() if apart <= limit)
    high = min(value for value, (apart, half) in against.items() if apart + half <= limit)
    above = {other: _apart(curve[value], curve[other], noise) for other in curve if other > best}
    return Knee(
        value=value,
        low=min(value for value, (apart, half) in against.items() if apart - half <= limit),
        high=max((other for other, (apart, half) in above.items() if apart + half > limit), default=high),
        best=best,
    )


def _apart(one: Point, other: Point, noise: float) -> tuple[float, float]:
    """Difference of two points, and half its 95% interval, at least the noise; by round where they share enough."""
    shared = [one[key] - other[key] for key in one.keys() & other.keys()]
    if len(shared) >= FEWEST_ROUNDS:
        return fmean(shared), max(_half(shared), noise)
    a, b = list(one.values()), list(other.values())
    return fmean(a) - fmean(b), max((_half(a) ** 2 + _half(b) ** 2) ** 0.5, noise)


def _half(values: Sequence[float]) -> float:
    return float(student_t(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5)
