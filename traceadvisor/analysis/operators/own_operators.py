"""Large operators that functions of the user call themselves, and that no gradient goes back through."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.call_sites import user_frame
from traceadvisor.analysis.operators.forward import backward_rows, forward_operators
from traceadvisor.analysis.operators.innermost import innermost_course
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.operators.python_frames import MODULE_PREFIX
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.location import Location
from traceadvisor.model.spans import SpanSet

FEW_CALLS = 4
"""Calls per step up to which an operator works on whole tensors."""

LARGE_NS, LARGE_PIECE_NS = 100_000, 1_000_000
"""Recorded mean duration of an operator that is large: one on whole tensors, and one with more calls."""

MAIN_SHARE = 0.5
"""Share of the function's time in such operators, from which those of one name are its cost."""

_OF_LAYERS = re.compile(
    r"aten::(?:_foreach|\w*(?:copy|clone|lerp|mm|conv|linear|matmul|norm|attention|embedding|loss|dropout|lstm|gru|rnn"
    r"|pool|interpolate|upsample|coalesce)|tanh|relu|sigmoid|gelu|silu|softplus|leaky_relu|elu|(?:log_)?softmax|einsum)"
)
"""Operators of models that may run without gradients, those that copy or average weights, and those that sort the
indices of sparse tensors, which may be gradients."""


@frozen(eq=False)
class OwnOperators:
    """Operators that one function of the user runs itself, without gradients."""

    location: Location
    rows: Int64
    """All of these operators, without those inside others."""

    main: Int64
    """Those of the name that takes most of the time."""

    calls_per_step: float
    """Calls of the main operator per step."""

    @property
    def is_whole(self) -> bool:
        """Whether the main operator works on whole tensors, rather than on many pieces."""
        return self.calls_per_step <= FEW_CALLS


def own_operators(observation: Observation, tree: OperatorTree, within: SpanSet, step_count: int) -> list[OwnOperators]:
    """Return the functions that large operators without gradients take most of, costliest first.

    Operators inside of modules that the function calls, in the loader and in optimizers do not count. Empty without
    recorded Python calls, or without a backward pass.
    """
    events, names = observation.trace.events, observation.trace.names
    rows = _without_gradients(observation, tree, within)
    callers = _callers(observation, events.start_ns[rows])
    found: list[tuple[int, OwnOperators]] = []
    for name in np.unique(callers[callers != NONE]).tolist():
        own = rows[callers == name]
        kinds, place = np.unique(events.name_id[own], return_inverse=True)
        times_ns = np.bincount(place, weights=events.duration_ns[own])
        most = int(times_ns.argmax())
        main = own[place == most]
        place_of_call = user_frame([names[name]], observation.trace.own_code)
        if place_of_call is None or _OF_LAYERS.match(names[kinds[most]]):
            continue
        location = Location.of_function(place_of_call.file, place_of_call.line, place_of_call.function or "")
        one = OwnOperators(location, own, main, main.size / max(step_count, 1))
        least_ns = LARGE_NS if one.is_whole else LARGE_PIECE_NS
        if times_ns[most] >= max(least_ns * main.size, MAIN_SHARE * times_ns.sum()):
            found.append((int(times_ns.sum()), one))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]


def _without_gradients(observation: Observation, tree: OperatorTree, within: SpanSet) -> Int64:
    """Return the outermost operators of the training thread that the backward pass does not go back through."""
    trace, mine = observation.trace, tree.tops(observation.thread)
    nodes, forward = forward_operators(trace, tree)
    needed: Mask = np.zeros(tree.rows.size, dtype=np.bool_)
    outermost = tree.outermost()
    for positions in (forward, nodes):
        needed[outermost[positions[positions != NONE]]] = True
    if not needed.any():
        return np.empty(0, dtype=np.int64)
    rows = tree.rows[mine[~needed[mine]]]
    starts_ns = trace.events.start_ns[rows]
    counts = within.contains(starts_ns) & ~(optimizer_steps(trace).own | observation.loading).contains(starts_ns)
    chosen: Int64 = np.setdiff1d(rows[counts], backward_rows(trace))
    return chosen


def _callers(observation: Observation, instants_ns: Int64) -> Int64:
    """Return the name of the user's function that runs at each instant; NONE inside a module that it calls."""
    trace, calls = observation.trace, observation.trace.python_calls
    mine = np.flatnonzero((calls.thread == observation.thread) & (calls.end_ns > calls.start_ns))
    used = np.unique(calls.name_id[mine])
    is_user, is_module = (np.zeros(len(trace.names), dtype=np.bool_) for _ in range(2))
    is_user[[name for name in used.tolist() if user_frame([trace.names[name]], trace.own_code)]] = True
    is_module[[name for name in used.tolist() if trace.names[name].startswith(MODULE_PREFIX)]] = True
    mine = mine[(is_user | is_module)[calls.name_id[mine]]]
    mine = mine[np.lexsort((-calls.end_ns[mine], calls.start_ns[mine]))]
    at = innermost_course(calls.start_ns[mine], calls.end_ns[mine]).at(instants_ns)
    name = np.append(calls.name_id[mine], NONE)[at].astype(np.int64)
    found: Int64 = np.where((name != NONE) & is_user[name], name, NONE)
    return found
