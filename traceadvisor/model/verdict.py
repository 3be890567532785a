"""The four verdicts on a difference, for comparisons and experiments, and how certain they are."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What measurements say about a difference."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    """The interval of the difference lies within 3%."""

    INCONCLUSIVE = "inconclusive"


class VerdictCertainty(Enum):
    """How certain a verdict is."""

    SHOWN = "shown"
    """The spread between captures is known, and the interval decides. Only this fails a gate."""

    LIKELY = "likely"
    """Too few captures for an interval; the change is far beyond what identical runs may differ by."""

    NOT_SHOWN = "not_shown"
    """The verdict is inconclusive."""
