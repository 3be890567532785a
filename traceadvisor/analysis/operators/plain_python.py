"""Stretches in which the host neither runs operators nor calls the runtime: plain Python, files, sleep."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.communication.collectives import host_collective_rows
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.steps.marks import recording_extent
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet


def plain_python(observation: Observation, least_ns: float) -> SpanSet:
    """Instants outside the loader at which no thread that trains is in operators or runtime calls, ``least_ns`` on end.

    The threads that train are the training thread and those that launch work: while one waits for another, nothing is
    idle. Nor is anything while the process exchanges with others: a wait for them is no work of its own.
    """
    events, calls = observation.trace.events, observation.launches.call_rows
    threads = {observation.thread, *np.unique(events.thread[calls[calls != NONE]]).tolist()}
    busy = SpanSet.union_all(observation.active(thread) for thread in threads) | observation.loading
    busy |= events.spans(host_collective_rows(observation.trace))
    return busy.gaps(*recording_extent(observation.trace)).lasting(least_ns)
