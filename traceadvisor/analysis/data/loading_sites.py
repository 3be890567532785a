"""User functions that make batches inside the loader's ``__next__``, in the training process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.call_sites import CallSite, call_sites, user_frame
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE
from traceadvisor.model.findings import Location
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import PythonCalls, Trace

_LOADER_FRAME = "torch/utils/data/"


def loading_sites(observation: Observation, tree: OperatorTree, waiting: SpanSet) -> list[CallSite]:
    """Return user functions called by the loader, with their time in it, costliest first.

    ``waiting``: instants inside the loader.
    """
    trace = observation.trace
    if trace.python_calls.start_ns.size:
        return call_sites(_within(trace, observation.loading), tree, observation.thread, waiting)
    return sorted(_by_operators(observation, tree, waiting), key=lambda site: -site.spans.total_ns)


def _within(trace: Trace, loading: SpanSet) -> Trace:
    """Return the recording with only the Python calls inside the loader."""
    calls = trace.python_calls
    inside_ns = loading.measure_until(calls.end_ns) - loading.measure_until(calls.start_ns)
    chosen = inside_ns == calls.end_ns - calls.start_ns
    inner = PythonCalls(calls.start_ns[chosen], calls.end_ns[chosen], calls.name_id[chosen], calls.thread[chosen])
    return replace(trace, python_calls=inner)


def _by_operators(observation: Observation, tree: OperatorTree, waiting: SpanSet) -> list[CallSite]:
    """Use the stacks of operators inside the loader, as in recordings of 2021."""
    trace, events = observation.trace, observation.trace.events
    outermost = tree.rows[(tree.parent == NONE) & (tree.thread == observation.thread)]
    rows = outermost[observation.loading.contains(events.start_ns[outermost])]
    stacks = trace.details.stack_id.at(rows, np.int32(NONE))
    groups: dict[Location, list[Int64]] = {}
    for stack in np.unique(stacks[stacks != NONE]).tolist():
        location = _inside_loader(trace.texts[stack].split(";"), trace.own_code)
        if location:
            groups.setdefault(location, []).append(rows[stacks == stack])
    return [
        CallSite((location,), None, events.spans(np.concatenate(some)) & waiting) for location, some in groups.items()
    ]


def _inside_loader(frames: list[str], own_code: frozenset[str] | None) -> Location | None:
    """Return the innermost user frame that the loader called; None if there is none."""
    called = next((at for at, frame in enumerate(frames) if _LOADER_FRAME in frame.replace("\\", "/")), 0)
    return user_frame(frames[:called], own_code)
