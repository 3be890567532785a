"""The four verdicts on a difference, for comparisons and experiments."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What measurements say about a difference."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    """The interval of the difference lies within 3%."""

    INCONCLUSIVE = "inconclusive"
