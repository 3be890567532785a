"""Device work and the runtime calls that launched it."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, read_only
from traceadvisor.model.events import DEVICE_WORK, NONE, EventTable, Kind
from traceadvisor.model.once import once
from traceadvisor.model.spans import SpanSet


@frozen(eq=False)
class Launches:
    """Device work and the calls that launched it; both arrays of shape ``(n,)``."""

    work_rows: Int64
    """Rows of the event table, by start; among equal starts by launch."""

    call_rows: Int64
    """The row of each operation's runtime call; NONE if not recorded."""

    def __post_init__(self) -> None:
        read_only(self.work_rows, self.call_rows)

    def of_device(self, events: EventTable, device: int | None) -> Launches:
        """Return the launches of one device; empty without a device."""
        mine = events.device[self.work_rows] == device if device is not None else slice(0)
        return Launches(self.work_rows[mine], self.call_rows[mine])


@once
def link_launches(events: EventTable) -> Launches:
    """Match device work with runtime calls by correlation id; the first of several calls with one id counts."""
    work = events.rows(*DEVICE_WORK)
    calls = events.rows(Kind.RUNTIME)
    calls = calls[events.correlation[calls] != NONE]
    keys, first = np.unique(events.correlation[calls], return_index=True)
    call_rows = np.full(work.size, NONE, dtype=np.int64)
    if keys.size:
        wanted = events.correlation[work]
        index = np.minimum(keys.searchsorted(wanted), keys.size - 1)
        found = (keys[index] == wanted) & (wanted != NONE)
        call_rows[found] = calls[first[index[found]]]
    call_starts = np.where(call_rows == NONE, np.iinfo(np.int64).max, events.start_ns[np.maximum(call_rows, 0)])
    order = np.lexsort((call_starts, events.start_ns[work]))
    return Launches(work[order], call_rows[order])


def work_within(events: EventTable, launches: Launches, ranges: Int64, windows: SpanSet) -> Launches:
    """Return the work that runs in some windows and was launched during one of some ranges, on its thread.

    ``ranges``: rows of operators or annotations. ``windows``: the steps that count.
    """
    if not ranges.size:
        return launches.of_device(events, None)
    within = (launches.call_rows != NONE) & windows.contains(events.start_ns[launches.work_rows])
    calls = launches.call_rows[within]
    within[within] = ThreadSpans.of(events, ranges).hold(events.thread[calls], events.start_ns[calls])
    return Launches(launches.work_rows[within], launches.call_rows[within])
