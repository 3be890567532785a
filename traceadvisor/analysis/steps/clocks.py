"""Wall clock against monotonic clock: suspended machines, clocks that were set, and paused containers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.health import HealthNote
from traceadvisor.model.run import ClockReading, Run
from traceadvisor.model.telemetry import ProcessColumn

LEAST_JUMP_NS = 1_000_000_000
"""Between the readings of both clocks, a busy system may run other programs for a good part of a second."""

SLEWED_SHARE = 0.001
"""A clock that is corrected gradually runs at most 0.05% fast or slow (``adjtime``, RFC 5905): half of this limit."""

LEAST_PAUSE_NS = 5_000_000_000
"""A busy machine delays the sampling thread by a second or two."""

MOST_PAUSED_CPU_PERCENT = 2.0
"""CPU use over a pause, 100 for a core. The samples at both ends of the pause take some."""


@frozen
class ClockJumps:
    """Jumps of the wall clock against the monotonic clock."""

    forward_ns: int = 0
    back_ns: int = 0


def clock_jumps(run: Run) -> ClockJumps:
    """Return the jumps of the wall clock during a run.

    Without monotonic readings only a wall clock that went back shows: a step then begins before the end of the one
    before it.
    """
    readings = list(_readings(run))
    forward = back = 0
    for before, after in pairwise(readings):
        passed_ns = after.clock_ns - before.clock_ns
        jump_ns = (after.wall_ns - before.wall_ns) - passed_ns
        if abs(jump_ns) > LEAST_JUMP_NS + SLEWED_SHARE * max(passed_ns, 0):
            forward += max(jump_ns, 0)
            back += max(-jump_ns, 0)
    if not readings:
        for one, other in pairwise(run.steps):
            overlap_ns = one.start_ns + one.duration_ns - other.start_ns
            back += overlap_ns if overlap_ns > LEAST_JUMP_NS else 0
    return ClockJumps(forward, back)


def _readings(run: Run) -> Iterator[ClockReading]:
    if run.started:
        yield run.started
    for step in run.steps:
        if step.clock_ns is not None:
            yield ClockReading(step.start_ns, step.clock_ns)
    if run.ended:
        yield run.ended


def pauses(run: Run) -> Sequence[tuple[int, int]]:
    """Return spans of wall-clock time in which the processes of the run did not run.

    Nothing was sampled meanwhile, and the first sample afterwards shows that no CPU time was used. A machine that was
    suspended does not show here: the sampler's clock stands still, too.
    """
    if run.telemetry is None:
        return ()
    series = run.telemetry.processes
    cpu = series.figures.get(ProcessColumn.CPU_PERCENT)
    if cpu is None or series.time_ns.size < 3:
        return ()
    unknown = np.ones(series.time_ns.size, dtype=np.bool_)
    for figures in series.figures.values():
        unknown &= np.isnan(figures)
    places = np.flatnonzero(unknown[1:-1]) + 1
    starts_ns, ends_ns = series.time_ns[places - 1], series.time_ns[places + 1]
    long = (ends_ns - starts_ns >= LEAST_PAUSE_NS) & (cpu[places + 1] <= MOST_PAUSED_CPU_PERCENT)
    return tuple(zip(starts_ns[long].tolist(), ends_ns[long].tolist(), strict=True))


def clock_notes(run: Run) -> Iterator[HealthNote]:
    """Yield one note if the clocks disagree or the processes stood still."""
    jumps, stopped_ns = clock_jumps(run), sum(end - start for start, end in pauses(run))
    parts = []
    if jumps.forward_ns:
        parts.append(
            f"The wall clock moved {_seconds(jumps.forward_ns)} ahead: the machine was suspended, or its clock was set."
        )
    if jumps.back_ns:
        parts.append(f"The wall clock was set back by {_seconds(jumps.back_ns)}.")
    if stopped_ns:
        parts.append(f"The processes did not run for {_seconds(stopped_ns)}, as in a paused container.")
    if parts:
        known = all(step.clock_ns is not None for step in run.steps)
        if jumps.forward_ns or jumps.back_ns:
            parts.append(
                "Durations are from a clock that does not jump; times of day may be wrong."
                if known
                else "Step times are from a clock that does not jump; times of day may be wrong."
            )
        yield HealthNote("clock", " ".join(parts), degrades=False)


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.1f} s" if ns < 600e9 else f"{ns / 60e9:,.0f} min"
