"""Stretches of host time without any call beginning or ending: one long call rather than many short ones."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet

LONG_NS = 1_000_000
"""A hundred times an ordinary operator's cost on the host."""


def long_stretches(observation: Observation, least_ns: int = LONG_NS) -> SpanSet:
    """Instants inside an operator or runtime call whose thread begins and ends no other for at least ``least_ns``."""
    events = observation.trace.events
    rows = np.flatnonzero(events.is_kind(Kind.OPERATOR, Kind.RUNTIME))
    found = []
    for thread in np.unique(events.thread[rows]).tolist():
        mine = rows[events.thread[rows] == thread]
        edges = np.unique(np.concatenate((events.start_ns[mine], events.end_ns[mine])))
        long = np.flatnonzero(np.diff(edges) >= least_ns)
        found.append(SpanSet.union_of(edges[long], edges[long + 1]) & observation.active(thread))
    return SpanSet.union_all(found)
