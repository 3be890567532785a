"""Figures of one rank for the comparison of ranks: small, whatever the size of its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import MeanBreakdown
from traceadvisor.model.location import Location
from traceadvisor.model.run import LoaderSettings
from traceadvisor.model.spans import SpanSet


@frozen
class RankFile:
    """A recording's file, and the rank and job it is of, as far as they are known."""

    path: Path
    run: str
    cycle: int
    """Position among the rank's recordings in the run."""

    rank: int | None
    world_size: int | None
    """Processes of the job."""

    recorded_wall_ns: tuple[int, int] | None
    """Start and end of the recording, wall clock since the epoch."""


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

    before_ns: Int64 | None = None
    """Time per category, in the order of :class:`Category`, from the end of the collective before until each starts;
    shape ``(m, categories)`` for the first ``m`` collectives. None if unknown."""

    def __getstate__(self) -> list[object]:
        """The arrays in as few bytes as their values need; starts as differences."""
        between_ns = np.diff(self.start_ns, prepend=0)
        arrays = (self.step, between_ns, self.duration_ns, self.kind, self.before_ns)
        return [None if one is None else _narrow(one) for one in arrays]

    def __setstate__(self, state: list[Any]) -> None:
        values = [None if one is None else one.astype(np.int64) for one in state]
        values[1] = np.cumsum(state[1], dtype=np.int64)
        for item, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, item.name, value)


_INTEGERS = (np.int8, np.int16, np.int32, np.int64)


def _narrow(array: Int64) -> NDArray[Any]:
    ends = (array.min(), array.max()) if array.size else (0, 0)
    holds = (kind for kind in _INTEGERS if np.iinfo(kind).min <= ends[0] and ends[1] <= np.iinfo(kind).max)
    return array.astype(next(holds))


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

    awaited_rank: int | None = None
    """The rank that most of this wait is for; None if it is uncertain."""

    sm_clock_mhz: float | None = None
    """Mean clock of its GPU while the run was not recorded; None without telemetry."""

    step_ns: float | None = None
    """The step time that savings refer to; None without a typical step."""

    shares_gradients: bool = False
    """Whether it reduces gradients with all other ranks, which therefore should train on other data."""

    sends_values_only: bool = False
    """Whether all its collectives are barriers and messages of a few values outside the model."""

    work: Mapping[int, float] = field(default_factory=dict)
    """By number of a kept step, the floating point operations of its matrix products, convolutions and attention; empty
    if the inputs of one are unknown."""

    lacked_cores: bool = False
    """Whether it computes on a CPU whose cores other programs used."""
