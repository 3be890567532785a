"""The fix of running matrix products in a narrower number type, and how much it can save."""

from __future__ import annotations

from traceadvisor.analysis.arithmetic.roofline import Speedups
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Facts, Fix

NO_SPEEDUPS = "no shapes and rates tell how much faster its calls would be"


def narrower_type(summary: str, change: str | None, speedups: Speedups | None) -> Fix:
    """The fix, simulated with kernels that get so much faster; not where no speed-up is known."""
    if speedups is None or not (speedups.high > 1).any():
        return Fix(summary, change, not_replayed=NO_SPEEDUPS)
    faster = FasterKernels(speedups.rows, speedups.low, speedups.expected, speedups.high)
    return Fix(summary, change, what_if=faster)


def most_saved_ns(facts: Facts, fix: Fix, time_ns: float) -> float:
    """The most that the fix saves per step of kernels that take ``time_ns``: what the highest speed-ups save."""
    if not isinstance(fix.what_if, FasterKernels):
        return time_ns
    durations_ns = facts.trace.events.duration_ns[fix.what_if.rows]
    return min(float((durations_ns * (1 - 1 / fix.what_if.high)).sum()) / facts.step_count, time_ns)
