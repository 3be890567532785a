"""The verdict on a difference, for comparisons and experiments, and how certain it is."""

from __future__ import annotations

from enum import Enum
from math import log1p

NO_DIFFERENCE = 0.03
"""An interval within this share of 1 means that no difference matters; a smaller change is never called."""

BUSY_SHARE = 0.2
"""Share of a machine's cores from which other programs may change a step."""

USUAL_NOISE = 0.15
"""Assumed difference of identical runs with few captures: they differed by up to 14% on a small machine."""

FAR_TIMES = 2.0
"""With few captures, a difference is likely from this multiple of that noise and of the interval within the runs."""


class Verdict(Enum):
    """The conclusion of measurements about a difference."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    """The interval of the difference lies within 3%."""

    INCONCLUSIVE = "inconclusive"


class VerdictCertainty(Enum):
    """How certain a verdict is."""

    SHOWN = "shown"
    """The spread between captures is known, and the interval decides."""

    LIKELY = "likely"
    """Too few captures for an interval; the change is far beyond what identical runs may differ by."""

    NOT_SHOWN = "not_shown"
    """The verdict is inconclusive."""


def verdict_of(size: float, low: float, high: float, null_size: float = 0.0) -> Verdict:
    """A change has to be large enough to matter, and to exceed what the same setting did to itself in any round.

    On a busy machine, identical settings differ by more than most changes from round to round. A test over all rounds
    may call such a change significant; a reader who sees both figures does not believe it.

    All are logarithms of ratios: the estimate, the ends of its interval, and the largest difference of the same setting
    in a round, without its sign: which of both ran first is chance.
    """
    least = log1p(NO_DIFFERENCE)
    if max(-low, high) <= least:
        return Verdict.NO_DIFFERENCE
    if low <= 0 <= high or abs(size) <= max(null_size, least):
        return Verdict.INCONCLUSIVE
    return Verdict.FASTER if size < 0 else Verdict.SLOWER
