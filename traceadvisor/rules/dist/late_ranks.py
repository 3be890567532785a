"""Find the rank that the others wait for inside collectives, and its extra time by category."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.ranks import RankFigures
from traceadvisor.model.spans import SpanSet


@frozen
class LateRank:
    """The rank that makes the others wait longest."""

    rank: int
    caused_ns: float
    """Wait of each other rank for this one, mean per step."""

    share_of_waiting: float
    """Share of all waiting for late ranks that this rank causes, 0..1."""

    step_ns: float
    """Mean step of all ranks."""

    longer: tuple[tuple[Category, float], ...]
    """Categories longer than the others' mean, with the extra nanoseconds per step; longest first."""


def late_rank(ranks: Sequence[RankFigures]) -> LateRank | None:
    """The rank that the others wait for most; None if no step has matching collectives on all ranks.

    A collective ends on all ranks at the same time, so the last rank to arrive spends the least time in it. The extra
    time of the others, while they run nothing else, is their wait. Concurrent collectives count as one wait. The
    ranks' clocks need not agree.
    """
    starts_ns, durations_ns, step_count = _side_by_side(ranks)
    if not durations_ns.size or len(ranks) < 2:  # a comparison needs two
        return None
    waits_ns = durations_ns - durations_ns.min(axis=0)
    latest = durations_ns.argmin(axis=0)
    caused_ns = np.array([_caused(ranks, starts_ns, waits_ns * (latest == late)) for late in range(len(ranks))])
    late = int(caused_ns.argmax())
    total_ns = float(caused_ns.sum())
    return LateRank(
        ranks[late].rank,
        float(caused_ns[late]) / step_count,
        float(caused_ns[late]) / total_ns if total_ns else 0.0,
        float(np.mean([one.mean.duration_ns for one in ranks])),
        _longer(ranks[late], [one for one in ranks if one is not ranks[late]]),
    )


def _caused(ranks: Sequence[RankFigures], starts_ns: Int64, waits_ns: Int64) -> float:
    """Exposed wait in nanoseconds over all steps, mean over the other ranks."""
    waited = (
        SpanSet.union_of(starts, starts + waits) & one.exposed
        for one, starts, waits in zip(ranks, starts_ns, waits_ns, strict=True)
    )
    return sum(spans.total_ns for spans in waited) / (len(ranks) - 1)


def _side_by_side(ranks: Sequence[RankFigures]) -> tuple[Int64, Int64, int]:
    """Starts and durations of matching collectives, shape ``(ranks, n)`` each, and the number of their steps."""
    steps = set.intersection(*(set(one.calls.step.tolist()) for one in ranks)) if ranks else set()
    starts, durations = [np.empty((len(ranks), 0), np.int64)], [np.empty((len(ranks), 0), np.int64)]
    for step in sorted(steps):
        mine = [np.flatnonzero(one.calls.step == step) for one in ranks]
        if len({part.size for part in mine}) == 1:
            starts.append(np.stack([one.calls.start_ns[rows] for one, rows in zip(ranks, mine, strict=True)]))
            durations.append(np.stack([one.calls.duration_ns[rows] for one, rows in zip(ranks, mine, strict=True)]))
    return np.concatenate(starts, axis=1), np.concatenate(durations, axis=1), len(starts) - 1


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
