"""What the comparison of several ranks needs of each: little, whatever the size of its trace."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import MeanBreakdown
from traceadvisor.model.run import LoaderSettings
from traceadvisor.model.spans import SpanSet


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveCalls:
    """The collectives of one rank in its kept steps, in order of time; arrays of shape ``(n,)``."""

    step: Int64
    """The step's number, the same on every rank."""

    start_ns: Int64
    """On this rank's own clock."""

    duration_ns: Int64
    """From this rank's arrival until all ranks have come and the exchange is done."""


@dataclass(frozen=True, slots=True, eq=False)
class RankFigures:
    """One rank of a run."""

    rank: int
    calls: CollectiveCalls
    mean: MeanBreakdown
    """Over its kept steps."""

    exposed: SpanSet
    """When it communicates and does nothing else, on its own clock."""

    loader: LoaderSettings | None = None
    """Of its training loader; None where not captured."""
