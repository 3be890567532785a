"""The saving of a fix: a range of time, how it was estimated, and how certain it is."""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import Self, assert_never

from traceadvisor.frozen import frozen


class Method(Enum):
    """How a saving was estimated."""

    REPLAY = "replay"
    """Simulated: the recorded step was replayed with the fix."""

    BOUND = "bound"
    """Upper limit: up to the full time of the cost. Other work may take its place."""

    MODEL = "model"
    """Calculated with a documented formula."""


class Certainty(Enum):
    """How certain a saving is, the most certain first."""

    SIMULATED = "simulated"
    UNSURE = "simulated_unsure"
    """Simulated, but the range is wider than the expected saving, or part of the simulation could not be validated."""

    CALCULATED = "calculated"
    LIMIT = "limit"
    """Only the upper limit is known. The real saving may be nothing."""

    NONE = "none"
    """Saves no time: it prevents errors or frees memory."""


EXPECTED_PART = 0.5
"""Part of an upper limit that is expected, unless a fix says otherwise."""

LEAST_NS = 0.5
"""A saving below this is shown as ``0 ns``, so it is none."""

WIDE_RATIO = 3.0
"""Highest ratio of the ends of a saving that is stated as a prediction. Of a wider range, only the upper end is."""


class Doubt(Enum):
    """A doubt that makes a saving an upper limit only, or less certain."""

    OF_THE_FIX = "of_the_fix"
    """The fix cannot be simulated. Its rule says why, in :attr:`Reason.words`."""

    NO_STEP = "no_step"
    """No complete step was recorded."""

    NOT_TOGETHER = "not_together"
    """The fix was not simulated with those above."""

    ONE_STEP = "one_step"
    TWO_STEPS = "two_steps"
    DISTORTED = "distorted"
    """Recorded steps took much longer than undisturbed ones, by the factor of the figure."""

    UNKNOWN_TIME = "unknown_time"
    """The recording does not show whether the GPU worked; the figure is the share of the step."""

    OTHER_DEVICE = "other_device"
    """Another GPU of the process is busy for that share of the step."""

    ERROR = "error"
    """The unchanged simulation differs from the recorded step by that share."""

    UNEXPLAINED_WAITS = "unexplained_waits"
    """For that share of the step the CPU waits for something that the recording does not show."""

    PACE_ERROR = "pace_error"
    """With batches at the loader workers' mean pace, the simulation differs from the recorded step by that share."""

    UNEVEN_BATCHES = "uneven_batches"
    """At that pace, a simulated round of the workers is off by that share."""

    LATE_BATCHES = "late_batches"
    """Only some steps wait for batches, for that share of the time: how fast the workers could be is unknown."""

    CPU_EXPLAINS_STEP = "cpu_explains_step"
    """The CPU alone explains the step within that share, so nothing shows how long the GPU alone would take."""

    WAITS_FOR_DEVICE = "waits_for_device"
    """After the fix, the step waits for the GPU, and nothing recorded shows how long that takes."""

    MEASURE_AGAIN = "measure_again"
    """The fixes above may save this time, too, so that nothing of it is sure after them."""

    CONDITIONS = "conditions"
    """Which of the changes is possible is not recorded: the place takes this time, and no saving is sure."""


@frozen
class Reason:
    """Why a saving is only an upper limit, or less certain."""

    doubt: Doubt
    figure: float | None = None
    """The share or factor that the doubt is about; None if it has none."""

    words: str | None = None
    """The rule's words on why the fix cannot be simulated, as a clause without its stop; None for other doubts."""


def of_the_fix(words: str) -> Reason:
    """Why a fix cannot be simulated, in the words of its rule."""
    return Reason(Doubt.OF_THE_FIX, words=words)


@frozen
class Estimate:
    """Saving per step in nanoseconds.

    Raises:
        ValueError: not ``0 <= low <= expected <= high``, all finite; or a bound without a reason.
    """

    low_ns: float
    expected_ns: float
    high_ns: float
    method: Method
    reason: Reason | None = None
    """Why the saving is only an upper limit, or is less certain; None if nothing applies."""

    def __post_init__(self) -> None:
        if not 0 <= self.low_ns <= self.expected_ns <= self.high_ns < inf:
            raise ValueError(f"not in order: {self.low_ns}, {self.expected_ns}, {self.high_ns}")
        if self.method is Method.BOUND and not self.reason:
            raise ValueError("an upper limit without a reason")

    @property
    def is_limit(self) -> bool:
        """Whether only the upper end is stated: nothing predicts the saving, or the range is too wide."""
        return self.method is Method.BOUND or self.high_ns > WIDE_RATIO * self.low_ns

    @property
    def is_bound(self) -> bool:
        """Whether nothing but an upper limit is stated: nothing predicts the saving, or none is expected."""
        return self.method is Method.BOUND or self.expected_ns < LEAST_NS

    @property
    def is_to_measure(self) -> bool:
        """Whether the fixes above may save this time, too, so that the rest has to be measured."""
        return self.reason is not None and self.reason.doubt is Doubt.MEASURE_AGAIN

    @property
    def is_of_place(self) -> bool:
        """Whether it is the time of a place, of which no change is known to save any."""
        return self.reason is not None and self.reason.doubt is Doubt.CONDITIONS

    @property
    def certainty(self) -> Certainty:
        """How certain the saving is, from its method and its range."""
        if not self.high_ns:
            return Certainty.NONE
        match self.method:
            case Method.BOUND:
                return Certainty.LIMIT
            case Method.MODEL:
                return Certainty.CALCULATED
            case Method.REPLAY:
                is_wide = self.high_ns - self.low_ns > self.expected_ns
                return Certainty.UNSURE if self.reason or is_wide else Certainty.SIMULATED
            case _:
                assert_never(self.method)

    def part(self, share: float) -> Estimate:
        """This share of the saving, 0..1."""
        low_ns, expected_ns, high_ns = (ns * share for ns in (self.low_ns, self.expected_ns, self.high_ns))
        return Estimate(low_ns, expected_ns, high_ns, self.method, self.reason)

    def of_place(self) -> Estimate:
        """The same time as that of a place: nothing of it is sure to be saved."""
        return Estimate(0.0, self.expected_ns, self.high_ns, self.method, Reason(Doubt.CONDITIONS))

    def up_to(self, most_ns: float) -> Estimate:
        """The saving with no end above a limit; an upper limit keeps the part of it that is expected."""
        if self.method is Method.BOUND and self.high_ns > most_ns:
            return self.part(most_ns / self.high_ns)
        low_ns, expected_ns, high_ns = (min(ns, most_ns) for ns in (self.low_ns, self.expected_ns, self.high_ns))
        return Estimate(low_ns, expected_ns, high_ns, self.method, self.reason)

    @classmethod
    def nothing(cls) -> Self:
        """The saving of a fix that does not shorten the step."""
        return cls(0.0, 0.0, 0.0, Method.MODEL)

    @classmethod
    def simulated(cls, low_ns: float, expected_ns: float, high_ns: float, reason: Reason | None = None) -> Self:
        """A simulated saving: its ends in any order, and the expected one between them."""
        low_ns, high_ns = min(low_ns, expected_ns), max(high_ns, expected_ns)
        return cls(low_ns, expected_ns, high_ns, Method.REPLAY, reason)

    @classmethod
    def bound(cls, most_ns: float, reason: Reason, expected_part: float = EXPECTED_PART) -> Self:
        """A saving of up to ``most_ns``; ``expected_part`` of it is expected.

        ``most_ns``: the upper limit. ``reason``: why it is not simulated.
        """
        return cls(0.0, expected_part * most_ns, most_ns, Method.BOUND, reason)
