"""Figures of one rank for the comparison of ranks: small, whatever the size of its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import MeanBreakdown
from traceadvisor.model.location import Location
from traceadvisor.model.run import LoaderSettings
from traceadvisor.model.spans import SpanSet


@frozen(eq=False)
class CollectiveCalls:
    """The collectives of all ranks, as one rank records them in its kept steps, in order of time.

    Arrays have the shape ``(n,)``.
    """

    step: Int64
    """The step's number, the same on every rank."""

    start_ns: Int64
    """On this rank's own clock."""

    duration_ns: Int64
    """From this rank's arrival until all ranks arrived and the collective is done."""

    kind: Int64
    """Position of its kind in :class:`CollectiveKind`: equal on all ranks that take part."""


@frozen(eq=False)
class RankFigures:
    """One rank of a run."""

    rank: int
    calls: CollectiveCalls
    mean: MeanBreakdown
    """Mean over its kept steps."""

    exposed: SpanSet
    """Communication that nothing overlaps, on its own clock."""

    loader: LoaderSettings | None = None
    """Its training loader's settings; None where not captured."""

    begin_ns: int = 0
    """Start of its first kept step, on its own clock."""

    places: tuple[tuple[Location, float], ...] = ()
    """Lines of the user's code with the most time outside communication, and that time per kept step in nanoseconds;
    empty without recorded stacks."""

    operators: Mapping[str, float] = field(default_factory=dict)
    """The same for operators."""

    recorded_wait_ns: float = 0.0
    """Exposed wait for other ranks that its own recording shows, mean per typical step; 0 if it shows none."""
