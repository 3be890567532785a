"""Until when a file that ends early holds every event."""

from __future__ import annotations

import numpy as np

from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import DEVICE_WORK, EventTable, Kind

_WRITTEN_TOGETHER = ((Kind.OPERATOR, Kind.ANNOTATION), (Kind.RUNTIME,), (*DEVICE_WORK, Kind.UNREAD))
"""Kinds of events that a profiler writes in one go, roughly in order of time: often one such group after another."""


def whole_until_ns(order: Int64, events: EventTable) -> int:
    """Return the instant before which no event is missing behind the end of a file that is cut off.

    A group goes on behind the end unless its last event lies further from there than any two of its events from each
    other. What follows may be as much earlier than the latest event as some of the group's events already are, judged
    by starts or by ends. A group of which the file holds nothing is not noticed.

    Args:
        order: the place of each event in the file.
        events: the events.
    """
    in_file = np.argsort(order)
    times = events.start_ns[in_file], events.end_ns[in_file]
    reached = []
    for group in _WRITTEN_TOGETHER:
        places = np.flatnonzero(np.isin(events.kind[in_file], group))
        if places.size and order.size - places[-1] <= np.diff(places).max(initial=1):
            reached.append(max(_reached_ns(one[places]) for one in times))
    return min(reached, default=0)


def _reached_ns(times_ns: Int64) -> int:
    latest_ns = np.maximum.accumulate(times_ns)
    return int(latest_ns[-1] - (latest_ns - times_ns).max())
