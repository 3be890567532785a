"""The state of a step of a captured run."""

from __future__ import annotations

from enum import Enum


class StepState(Enum):
    """The profiler's influence on a step's time, as ``steps.<rank>.csv`` names it."""

    PLAIN = "plain"
    WARMUP = "warmup"
    """The profiler ran but did not record."""

    SETTLING = "settling"
    """Too soon after a stall to count, recorded or not."""

    RECORDED = "recorded"
    STALLED = "stalled"
    """The profiler exported right before it, or stopped before its end."""

    OTHER = "other"
    """Not a training step: validation, for example."""
