"""The fix of running matrix operations in a narrower data type, and its maximum saving."""

from __future__ import annotations

from traceadvisor.analysis.arithmetic.roofline import Speedups
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Facts, Fix

NO_SPEEDUPS = "input shapes and peak rates give no speed-up for these calls"


def narrower_type(summary: str, change: str | None, speedups: Speedups | None) -> Fix:
    """Return the fix, simulated with faster kernels; without a known speed-up, it is not simulated."""
    if speedups is None or not (speedups.high > 1).any():
        return Fix(summary, change, not_replayed=NO_SPEEDUPS)
    faster = FasterKernels(speedups.rows, speedups.low, speedups.expected, speedups.high)
    return Fix(summary, change, what_if=faster)


def most_saved_ns(facts: Facts, fix: Fix, time_ns: float) -> float:
    """Return the maximum saving in nanoseconds per step: with the highest speed-ups, and at most ``time_ns``."""
    if not isinstance(fix.what_if, FasterKernels):
        return time_ns
    durations_ns = facts.trace.events.duration_ns[fix.what_if.rows]
    return min(float((durations_ns * (1 - 1 / fix.what_if.high)).sum()) / facts.step_count, time_ns)
