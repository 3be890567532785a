"""The fix of running matrix operations in a narrower data type, and its maximum saving."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.analysis.arithmetic.device_work import DeviceWork
from traceadvisor.analysis.arithmetic.matrix_work import PRECISIONS
from traceadvisor.analysis.arithmetic.roofline import Speedups
from traceadvisor.hardware.devices import DeviceRow, Precision
from traceadvisor.model.arrays import Int64, Mask, common
from traceadvisor.model.findings import Fix
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Facts, Input, Part

NO_SPEEDUPS = "input shapes and peak rates give no speed-up for these calls"
NO_SHAPES = "input shapes were not recorded, so the speed-up of each call is unknown"

NO_RATES = (
    "The peak rates of this GPU are not known here, so neither is the time that another type would save. "
    "Measure it with `traceadvisor try`."
)

LEAST_COVERED_SHARE = 0.5
"""Share of the kernels' time with a known speed-up. With less, a simulation would leave out most of the saving."""


def narrower_type(facts: Facts, fix: Fix, speedups: Speedups | None, rows: Int64, *, has_casts: bool = False) -> Fix:
    """Return the fix with its simulation, or with why there is none: unknown speed-ups for most of ``rows``.

    ``has_casts``: whether tensors are cast to the type by operators of their own.
    """
    if speedups is None or not (speedups.high > 1).any() or _covered_share(facts, speedups, rows) < LEAST_COVERED_SHARE:
        no_shapes = facts.missing(frozenset({Input.SHAPES})) is not None
        return replace(fix, not_replayed=NO_SHAPES if no_shapes else NO_SPEEDUPS)
    faster = FasterKernels(speedups.rows, speedups.low, speedups.expected, speedups.high, has_casts=has_casts)
    return replace(fix, what_if=faster)


def _covered_share(facts: Facts, speedups: Speedups, rows: Int64) -> float:
    """Return the share of the time of some kernels whose call has known shapes."""
    work = facts.device_work
    known = work.kernels_of(np.isfinite(work.calls.least_flops))
    covered = common(speedups.rows, known)
    return work.time_ns(common(covered, rows)) / max(work.time_ns(rows), 1)


def most_saved_ns(facts: Facts, fix: Fix, time_ns: float) -> float:
    """Return the maximum saving in nanoseconds per step: with the highest speed-ups, and at most ``time_ns``."""
    if not isinstance(fix.what_if, FasterKernels):
        return time_ns
    durations_ns = facts.trace.events.duration_ns[fix.what_if.rows]
    return min(float((durations_ns * (1 - 1 / fix.what_if.high)).sum()) / facts.step_count, time_ns)


def rate_bound_ns(work: DeviceWork, row: DeviceRow, chosen: Mask, target: Precision, time_ns: float) -> float:
    """Return how much of ``time_ns`` some kernels could save by the ratio of the GPU's peak rates.

    Args:
        work: of the device.
        row: its peak rates.
        chosen: the kernels, a value for each of ``work.by_kernel``.
        target: the type to multiply in. A kernel of unknown type counts as float32.
        time_ns: their time per step.
    """
    rate = row.flops_per_s(target)
    if rate is None:
        return 0.0
    kernels = work.by_kernel
    single = PRECISIONS.index(Precision.FP32)
    codes = np.where(kernels.precision[chosen] < 0, single, kernels.precision[chosen])
    rates = np.array([row.flops_per_s(each) or rate for each in PRECISIONS])
    durations_ns = work.trace.events.duration_ns[kernels.rows[chosen]]
    saved_ns = durations_ns * np.clip(1 - rates[codes] / rate, 0.0, 1.0)
    return time_ns * float(saved_ns.sum()) / max(float(durations_ns.sum()), 1.0)


def to_check(facts: Facts) -> str:
    """Return what a narrower type may harm."""
    return "that training still converges" if Part.BACKWARD in facts.program else "the accuracy of the results"
