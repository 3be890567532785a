"""A job of several ranks: who is late, why, and how much the ranks differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.communication import CollectiveKind
from traceadvisor.model.distortion import DISTORTED_RATIO
from traceadvisor.model.location import Location

LITTLE_SHARE = 0.02
"""Share of the step. With less waiting, ranks keep pace."""


class LateCause(Enum):
    """The activity of a rank while the others already wait in a collective."""

    DATA = "data"
    COMPUTE = "compute"
    HOST = "host"
    COPIES = "copies"
    LINK = "link"
    """Communication with some of the ranks."""

    CLOCK = "clock"
    """Compute on a GPU whose clock is lower than that of the others."""

    START = "start"
    """It began the first recorded step later; why was not recorded."""

    UNKNOWN = "unknown"


@frozen
class RankRow:
    """One rank; times are means per step."""

    rank: int
    recording_id: str
    step_ns: float
    parts_ns: Mapping[Category, float | None]
    wait_ns: float | None = None
    """Exposed wait for ranks that arrive later; None if its collectives could not be matched."""

    caused_ns: float | None = None
    """Exposed wait of the other ranks for this one, mean over them."""

    last_count: int | None = None
    """Collectives that it enters last."""

    clock_error_ns: int | None = None
    """95% of the ends of its collectives lie this close to those of the others, with all clocks aligned."""

    sm_clock_mhz: float | None = None

    @property
    def work_ns(self) -> float:
        """The step without the wait for other ranks."""
        return self.step_ns - (self.wait_ns or 0.0)


@frozen
class LateCollective:
    """A collective, and the rank that entered it last."""

    step: int
    number: int
    """Its number among the compared collectives of the step, from 1."""

    kind: CollectiveKind
    rank: int
    late_ns: int
    """Time by which it arrived after the median of the other ranks."""

    waited_ns: float
    """Wait of the other ranks, mean over them."""

    transfer_ns: int
    """The longest that the transfer can take."""

    cause: LateCause
    extra_ns: Mapping[Category, int] = field(default_factory=dict)
    """Time by which the last rank did something longer than the median of the others since the collective before."""


@frozen
class Straggler:
    """A rank that the others wait for; times are means per step."""

    rank: int
    caused_ns: float
    """Exposed wait of the other ranks for it, mean over them."""

    share_of_waiting: float
    late_steps: int
    """Steps in which it causes the most waiting."""

    is_persistent: bool | None
    """Whether it is the latest in most steps; None if that may be by chance, as with few steps."""

    causes: Mapping[LateCause, float]
    """Share of the wait for it, by what it did before; largest first."""

    location: Location | None = None
    """The line that takes it longest beyond the other ranks."""

    location_ns: float | None = None


@frozen
class Spread:
    """One figure over all ranks."""

    low_ns: float
    low_rank: int
    median_ns: float
    high_ns: float
    high_rank: int


@frozen(eq=False)
class Lanes:
    """One step of all ranks on one clock; arrays of shape ``(ranks, n)``, nanoseconds since the first rank's begin."""

    step: int
    begin_ns: Int64
    """When each rank begins, shape ``(ranks,)``."""

    arrival_ns: Int64
    """When each rank enters each collective."""

    sent_ns: Int64
    """When the last rank has arrived, and the transfer begins."""

    end_ns: Int64


@frozen(eq=False)
class Job:
    """The ranks of a job that were recorded at the same time."""

    run: str
    cycle: int
    world_size: int | None
    ranks: tuple[RankRow, ...]
    spread: Mapping[Category, Spread]
    step_spread: Spread
    step_ns: float | None = None
    """The step that savings refer to: the longest of its judged ranks, without the profiler if it is known. None in
    older reports."""

    in_full: tuple[int, ...] = ()
    """Slowest, median and fastest rank by their time without waiting."""

    missing: tuple[int, ...] = ()
    """Ranks that were not recorded."""

    other_steps: tuple[int, ...] = ()
    """Ranks that recorded other steps or other collectives than most; they are not compared."""

    step_count: int = 0
    """Steps with the same collectives on all compared ranks."""

    collective_count: int = 0
    clock_error_ns: int | None = None
    """95% of the ends of collectives lie this close together, with all clocks aligned; None with one collective."""

    waiting_ns: float | None = None
    """Wait of a rank for later ones, mean per step."""

    recorded_wait_ns: float = 0.0
    """Wait for other ranks that the recording of each compared rank shows by itself, at least, mean per step. What
    exceeds ``waiting_ns`` is for ranks that were not recorded."""

    awaited_rank: int | None = None
    """The rank that this wait is for; None if it is uncertain."""

    transfer_ns: float | None = None
    """The longest that the transfer of all collectives can take, mean per step."""

    stragglers: tuple[Straggler, ...] = ()
    """Those that cause the most waiting, most first."""

    lacks_cores: bool = False
    """Whether the first of them may be late because other programs used its cores."""

    collectives: tuple[LateCollective, ...] = ()
    """The collectives with the most waiting, most first."""

    lanes: Lanes | None = None

    @property
    def shown_step_ns(self) -> float:
        """The step that recorded waits are shares of: without the profiler, unless recorded steps are much longer."""
        recorded_ns = self.step_spread.high_ns
        is_distorted = self.step_ns is not None and recorded_ns >= DISTORTED_RATIO * self.step_ns
        return recorded_ns if self.step_ns is None or is_distorted else self.step_ns

    @property
    def keeps_pace(self) -> bool:
        """Whether no rank is late, or ranks wait too little to say which."""
        return not self.stragglers or (self.waiting_ns or 0.0) < LITTLE_SHARE * self.shown_step_ns

    @property
    def waits_for_others(self) -> bool:
        """Whether all ranks wait for one that was not recorded."""
        return self.recorded_wait_ns - (self.waiting_ns or 0.0) >= LITTLE_SHARE * self.shown_step_ns > 0

    @property
    def late_rank(self) -> int | None:
        """The rank that the others wait for most; None if ranks keep pace or take turns, or something else explains it:
        chance, or other programs.
        """
        is_named = not self.keeps_pace and self.stragglers[0].is_persistent and not self.lacks_cores
        return self.stragglers[0].rank if is_named else None
