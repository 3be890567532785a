"""Kernels that were launched but not recorded, by the step that launched them.

Steps that are no training steps among those that are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.analysis.operators.runtime_calls import kernel_launch_rows
from traceadvisor.analysis.steps.marks import Mark
from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.events import DEVICE_WORK, NONE, Kind
from traceadvisor.model.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class LostRecords:
    """Kernel launches of each of some stretches of the host's time; the devices are taken together."""

    launched: Int64
    missing: Int64
    """Those without a device record."""

    @property
    def shares(self) -> Float64:
        """Of the launches; 0 where there are none."""
        return self.missing / np.maximum(self.launched, 1)

    @property
    def least_share(self) -> float:
        """Of the stretches with launches; 0 where there are none."""
        return float(np.min(self.shares, where=self.launched > 0, initial=1.0)) if self.launched.any() else 0.0

    @property
    def share(self) -> float:
        """Of all launches together."""
        return float(self.missing.sum() / max(self.launched.sum(), 1))


def lost_records(trace: Trace, spans: Sequence[tuple[int, int]]) -> LostRecords:
    """Launches by the stretch in which they begin; the stretches are in order of time.

    Where no device work was recorded at all, it is not that records were lost: none count as missing.
    """
    events = trace.events
    calls, work = kernel_launch_rows(trace), events.rows(*DEVICE_WORK)
    stretch = position_at(spans, events.start_ns[calls])
    lost = ~np.isin(events.correlation[calls], events.correlation[work]) & bool(work.size)
    return LostRecords(
        np.bincount(stretch[stretch != NONE], minlength=len(spans)),
        np.bincount(stretch[(stretch != NONE) & lost], minlength=len(spans)),
    )


def position_at(spans: Sequence[tuple[int, int]], instants_ns: Int64) -> Int64:
    """Position of the stretch that holds each instant, the later one where they overlap; NONE outside all."""
    if not spans:
        return np.full(instants_ns.shape, NONE, dtype=np.int64)
    starts, ends = np.array(spans, dtype=np.int64).T
    position = np.searchsorted(starts, instants_ns, side="right") - 1
    return np.where((position >= 0) & (instants_ns < ends[position]), position, NONE)


BACKWARD = "autograd::engine::evaluate_function"


def steps_of_another_kind(trace: Trace, marks: tuple[Mark, ...]) -> list[int]:
    """Positions of steps without a backward pass, where most steps have one: validation, for example.

    Where most have none it may be hidden (a captured graph has no operators), and nothing is told apart.
    """
    rows = rows_with_prefix(trace, Kind.OPERATOR, BACKWARD)
    holders = position_at([mark.span for mark in marks], trace.events.start_ns[rows])
    without = np.bincount(holders[holders != NONE], minlength=len(marks)) == 0
    return np.flatnonzero(without).tolist() if 2 * without.sum() < len(marks) else []
