"""Thousands of samples drawn with a few hundred points, every peak among them."""

from __future__ import annotations

import numpy as np

from traceadvisor.model.arrays import Float64, Int64, Mask

MOST_POINTS = 200
"""Of one line, give or take its two ends."""

GAP_INTERVALS = 3
"""Readings this many of their usual intervals apart are not joined: figures that are dear to read are read more
seldom than others, which is no gap."""

SHORTEST_GAP_NS = 1_000_000_000
"""What is less than this is a busy machine, not a gap."""


def thinned(time_ns: Int64, values: Float64, broken_off: Mask) -> tuple[Int64, ...]:
    """Rows to draw, one array for each unbroken stretch of readings.

    Args:
        time_ns: when each row was sampled, ascending; shape ``(n,)``.
        values: what was read, NaN where nothing was; shape ``(n,)``.
        broken_off: rows at which the sampling as a whole broke off; shape ``(n,)``.
    """
    read = np.flatnonzero(np.isfinite(values))
    if not read.size:
        return ()
    breaks_before = np.cumsum(broken_off)
    spacing_ns = np.diff(time_ns[read])
    usual_ns = float(np.median(spacing_ns)) if spacing_ns.size else 0.0
    gaps = (np.diff(breaks_before[read]) > 0) | (spacing_ns > max(GAP_INTERVALS * usual_ns, SHORTEST_GAP_NS))
    stretch_of = np.concatenate(([0], np.cumsum(gaps)))
    kept = _peaks(time_ns, values, read)
    return tuple(np.split(read[kept], np.flatnonzero(np.diff(stretch_of[kept])) + 1))


def _peaks(time_ns: Int64, values: Float64, read: Int64) -> Int64:
    """Positions among the readings: the least and the largest of each slot of time, the first and the last of all.

    Where all of a slot are alike, its ends, so that a rise is drawn as steep as it was.
    """
    if read.size <= MOST_POINTS:
        return np.arange(read.size)
    edges_ns = np.linspace(time_ns[read[0]], time_ns[read[-1]], MOST_POINTS // 2 + 1)[1:-1]
    slots = np.split(np.arange(read.size), np.searchsorted(time_ns[read], edges_ns))
    kept = [0, read.size - 1]
    for slot in slots:
        if slot.size:
            least, largest = int(slot[np.argmin(values[read[slot]])]), int(slot[np.argmax(values[read[slot]])])
            kept += [least, largest] if least != largest else [int(slot[0]), int(slot[-1])]
    return np.unique(kept)
