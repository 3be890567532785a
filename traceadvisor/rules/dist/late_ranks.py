"""Find the rank that the others wait for inside collectives, and its extra time by category."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.communication.matching import matching
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

    last_count: int
    """Collectives that this rank enters last."""

    count: int
    """All compared collectives."""

    transfer_ns: float
    """The longest that the transfer of all collectives can take, mean per step."""

    step_ns: float
    """Mean step of all ranks."""

    longer: tuple[tuple[Category, float], ...]
    """Categories longer than the others' mean, with the extra nanoseconds per step; longest first."""


def late_rank(ranks: Sequence[RankFigures]) -> LateRank | None:
    """The rank that the others wait for most; None if no step has matching collectives on all ranks.

    Only waits count during which the others run nothing else. Concurrent collectives count as one wait.
    """
    matched = matching([one.calls for one in ranks]) if len(ranks) > 1 else None
    if matched is None:
        return None
    waits_ns, last = matched.wait_ns, matched.last
    caused_ns = np.array([_caused(ranks, matched.start_ns, waits_ns * (last == late)) for late in range(len(ranks))])
    late = int(caused_ns.argmax())
    total_ns = float(caused_ns.sum())
    return LateRank(
        ranks[late].rank,
        float(caused_ns[late]) / matched.step_count,
        float(caused_ns[late]) / total_ns if total_ns else 0.0,
        int((last == late).sum()),
        last.size,
        float(matched.transfer_ns.sum()) / matched.step_count,
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
