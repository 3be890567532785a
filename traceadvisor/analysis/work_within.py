"""Device work by the host ranges that it is launched in."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.launches import Launches
from traceadvisor.model.arrays import Int64, numbers_in
from traceadvisor.model.events import NONE, EventTable
from traceadvisor.model.spans import SpanSet


def work_within(events: EventTable, launches: Launches, ranges: Int64, windows: SpanSet) -> Launches:
    """The work that runs in some windows and was launched on the thread of, and during, one of some ranges.

    Args:
        events: the recording's.
        launches: of one device.
        ranges: rows of operators or annotations.
        windows: the steps that count.
    """
    within = np.zeros(launches.work_rows.size, dtype=np.bool_)
    asked = (launches.call_rows != NONE) & windows.contains(events.start_ns[launches.work_rows])
    for thread in numbers_in(events.thread[ranges]):
        inside = events.spans(ranges[events.thread[ranges] == thread])
        mine = asked & (events.thread[launches.call_rows] == thread)
        within |= mine & inside.contains(events.start_ns[launches.call_rows])
    return Launches(launches.work_rows[within], launches.call_rows[within])
