"""GPU operations that run at the same time as others: their common time does not disappear with some of them."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, without
from traceadvisor.model.events import EventTable
from traceadvisor.model.spans import SpanSet


@frozen(eq=False)
class SharedTime:
    """Instants at which several operations of a device run."""

    events: EventTable
    spans: SpanSet
    rows: Int64
    """The operations that run then, ascending."""

    @staticmethod
    def of(observation: Observation) -> SharedTime:
        """Return the shared time of an observed device."""
        events, rows = observation.trace.events, observation.launches.work_rows
        starts, ends = events.start_ns[rows], events.end_ns[rows]
        until = np.minimum(ends[1:], np.maximum.accumulate(ends)[:-1])
        spans = SpanSet.union_of(starts[1:], until)
        return SharedTime(events, spans, rows[spans.measure_until(ends) > spans.measure_until(starts)])

    def beside(self, rows: Int64) -> SpanSet:
        """Return the time in which operations other than the given ones run, as far as any runs beside another."""
        return self.events.spans(without(self.rows, rows)) if self.rows.size else SpanSet.empty()
