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

WIDE_RATIO = 3.0
"""Highest ratio of the ends of a saving that is stated as a prediction. Of a wider range, only the upper end is."""

ALWAYS_THE_SAME = "our low and high assumptions give the same simulated step"
"""Why a simulated saving has no range."""


@frozen
class Estimate:
    """Saving per step in nanoseconds.

    Raises:
        ValueError: not ``0 <= low <= expected <= high``, all finite; a bound, or a saving without a range, without a
            reason.
    """

    low_ns: float
    expected_ns: float
    high_ns: float
    method: Method
    reason: str | None = None
    """Why the saving is only an upper limit, has no range, or is less certain; None if nothing applies."""

    def __post_init__(self) -> None:
        if not 0 <= self.low_ns <= self.expected_ns <= self.high_ns < inf:
            raise ValueError(f"not in order: {self.low_ns}, {self.expected_ns}, {self.high_ns}")
        if self.method is Method.BOUND and not self.reason:
            raise ValueError("an upper limit without a reason")
        if self.high_ns and not (self.has_range or self.reason):
            raise ValueError("a saving without a range needs a reason")

    @property
    def has_range(self) -> bool:
        """Whether low and high differ by more than a nanosecond, to which reports round them."""
        return round(self.high_ns) - round(self.low_ns) > 1

    @property
    def is_limit(self) -> bool:
        """Whether only the upper end is stated: nothing predicts the saving, or the range is too wide."""
        return self.method is Method.BOUND or self.high_ns > WIDE_RATIO * self.low_ns

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
                is_doubtful = self.reason not in {None, ALWAYS_THE_SAME}
                is_wide = self.high_ns - self.low_ns > self.expected_ns
                return Certainty.UNSURE if is_doubtful or is_wide else Certainty.SIMULATED
            case _:
                assert_never(self.method)

    def part(self, share: float) -> Estimate:
        """This share of the saving, 0..1."""
        low_ns, expected_ns, high_ns = (ns * share for ns in (self.low_ns, self.expected_ns, self.high_ns))
        same = high_ns > 0 and round(high_ns) - round(low_ns) <= 1
        reason = self.reason or (ALWAYS_THE_SAME if same else None)
        return Estimate(low_ns, expected_ns, high_ns, self.method, reason)

    @classmethod
    def nothing(cls) -> Self:
        """The saving of a fix that does not shorten the step."""
        return cls(0.0, 0.0, 0.0, Method.MODEL)

    @classmethod
    def simulated(cls, low_ns: float, expected_ns: float, high_ns: float, doubt: str | None = None) -> Self:
        """A simulated saving. If it has no range, it says why.

        Args:
            low_ns: the saving with the assumptions for the smallest one.
            expected_ns: the expected saving.
            high_ns: the saving with the assumptions for the largest one.
            doubt: why it is less certain, as a clause without its stop.
        """
        doubt = None if doubt == ALWAYS_THE_SAME else doubt
        same = high_ns > 0 and round(high_ns) - round(low_ns) <= 1
        return cls(low_ns, expected_ns, high_ns, Method.REPLAY, doubt or (ALWAYS_THE_SAME if same else None))

    @classmethod
    def bound(cls, most_ns: float, reason: str, expected_part: float = EXPECTED_PART) -> Self:
        """A saving of up to ``most_ns``; ``expected_part`` of it is expected.

        ``most_ns``: the upper limit. ``reason``: why it is not simulated, as a clause without its stop.
        """
        return cls(0.0, expected_part * most_ns, most_ns, Method.BOUND, f"not simulated: {reason}")
