"""Functions of the user that run inside a step, with what the backward pass runs because of them."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.call_sites import user_frame
from traceadvisor.analysis.operators.forward import backward_rows, forward_operators, spans_of_nodes
from traceadvisor.analysis.operators.innermost import positions_by
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Location
from traceadvisor.model.spans import SpanSet


@frozen(eq=False)
class UserFunction:
    """A function of the user, and when it runs."""

    location: Location
    spans: SpanSet
    """While the training thread is inside of it."""

    backward: SpanSet
    """While the backward pass goes back through operators that began in it."""

    other_calls: SpanSet
    """Calls that no backward pass goes back through, if it does through others: the training computes a target so."""

    @property
    def whole(self) -> SpanSet:
        """Both."""
        return self.spans | self.backward


def user_functions(observation: Observation, tree: OperatorTree, within: SpanSet) -> list[UserFunction]:
    """Return the user's functions that the training thread runs in some time, without those around a backward pass.

    They come in the order in which they begin first, inner ones behind those around them. Empty without recorded Python
    calls.
    """
    trace, events = observation.trace, observation.trace.events
    calls = trace.python_calls
    mine = np.flatnonzero(calls.thread == observation.thread)
    by_name = positions_by(calls.name_id[mine])
    nodes, forward = forward_operators(trace, tree)
    linked = np.flatnonzero(forward != NONE)
    node, first = np.unique(nodes[linked], return_index=True)
    made_ns = tree.start_ns[forward[linked][first]]
    passes_ns = np.sort(events.start_ns[backward_rows(trace)])
    found = []
    for name in sorted(by_name, key=lambda one: int(by_name[one][0])):
        if (place := user_frame([trace.names[name]], trace.own_code)) is None:
            continue
        rows = mine[by_name[name]]
        spans = SpanSet.union_of(calls.start_ns[rows], calls.end_ns[rows]) & within
        begins, ends = (np.searchsorted(passes_ns, at) for at in (spans.starts_ns, spans.ends_ns))
        if spans and not (ends > begins).any():
            is_made = spans.contains(made_ns)
            has_made = np.isin(np.arange(len(spans)), np.searchsorted(spans.starts_ns, made_ns[is_made], "right") - 1)
            other = SpanSet.union_of(*(ends[~has_made] for ends in (spans.starts_ns, spans.ends_ns)))
            location = Location.of_function(place.file, place.line, place.function or "")
            passes = spans_of_nodes(trace, tree, node[is_made]) & within
            found.append(UserFunction(location, spans, passes, other if has_made.any() else SpanSet.empty()))
    return found
