"""Host time inside one long call rather than many short ones."""

from __future__ import annotations

from traceadvisor.analysis.observation import Observation
from traceadvisor.model.arrays import numbers_in
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet

LONG_NS = 1_000_000
"""A hundred times what an ordinary operator costs the host."""


def long_call_time(observation: Observation, least_ns: int = LONG_NS) -> SpanSet:
    """Instants at which the innermost operator of some thread lasts at least ``least_ns``, or a runtime call does."""
    events = observation.trace.events
    is_long = events.duration_ns >= least_ns
    operators, calls = events.is_kind(Kind.OPERATOR), events.is_kind(Kind.RUNTIME)
    found = []
    for thread in numbers_in(events.thread[(operators | calls) & is_long]):
        mine = events.thread == thread
        found.append(events.spans(mine & operators & is_long) - events.spans(mine & operators & ~is_long))
        found.append(events.spans(mine & calls & is_long))
    return SpanSet.union_all(found)
