"""Operators that a loop calls again and again with the same shapes, and how much of their time is that of calling."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.arithmetic.convolutions import CONVOLUTION_FORMULAS
from traceadvisor.analysis.arithmetic.flops import MATMUL_FORMULAS
from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.call_sites import user_frame
from traceadvisor.analysis.operators.forward import backward_rows
from traceadvisor.analysis.operators.innermost import ThreadCalls, positions_by
from traceadvisor.analysis.operators.inputs import Inputs, read_inputs
from traceadvisor.analysis.operators.names import name_mask, usual_durations
from traceadvisor.analysis.operators.python_frames import MODULE_PREFIX, frame_of
from traceadvisor.analysis.operators.source_files import is_library, is_of_capture
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.events import NONE
from traceadvisor.model.spans import SpanSet

FEWEST_CALLS = 8
"""Calls of an operator with the same shapes, by the same module, that are a loop."""

FLOPS_PER_NS = 10.0
"""Work of a core in products of small matrices, with which their elements take no less than they do."""

ELEMENTS_PER_NS = 1.0
"""The same for elements of other operators, of which the largest input counts."""

MOST_CALLING_NS = 150_000.0
"""Time of calling an operator, at most: a small convolution of 3 channels took 128 us recorded, and all of a batch four
times less."""

MOST_UNKNOWN_NS = 35_000.0
"""The same for an operator without recorded shapes, which may have many elements."""

_OF_LAYERS = re.compile(r"torch/nn/modules/")
"""Functions of layers that torch has."""

_NO_LIBRARY = re.compile(r"torch/|<")

_FORMULAS = MATMUL_FORMULAS | CONVOLUTION_FORMULAS
_MULTIPLIES = re.compile(r"aten::(?:mm|bmm|addmm|mv|baddbmm|convolution|convolution_backward)$")
"""Operators with such work of which none runs another."""


@frozen(eq=False)
class LoopedOperators:
    """Outermost forward operators of the training thread, in order of time. Arrays of shape ``(n,)``."""

    rows: Int64
    passes: Int64
    """Number of the forward pass that each belongs to."""

    alike: Int64
    """Number of its name, its shapes and the innermost module that calls it."""

    module_calls: Int64
    """Number of the innermost call of a module around it; NONE without one."""

    def repeated_in(self, spans: SpanSet, starts_ns: Int64) -> Int64:
        """Return how often each operator is called in its pass and in its one of some calls; 0 outside of these.

        ``spans``: the calls, ``starts_ns``: when each operator starts, shape ``(n,)``.
        """
        inside, found = np.flatnonzero(spans.contains(starts_ns)), np.zeros_like(starts_ns)
        found[inside] = self.repeats(spans.starts_ns.searchsorted(starts_ns[inside], side="right"), inside)
        return found

    def repeats(self, calls: Int64, chosen: Int64) -> Int64:
        """Return how often each of some operators is called in its pass and in its one of some calls.

        ``calls``: their numbers, ``chosen``: places of the operators; both of shape ``(n,)``.
        """
        sizes = int(self.passes.max(initial=0)) + 1, int(self.alike.max(initial=0)) + 1
        keys = (calls * sizes[0] + self.passes[chosen]) * sizes[1] + self.alike[chosen]
        _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
        found: Int64 = counts[which.reshape(-1)]
        return found


def outermost_forward(observation: Observation, tree: OperatorTree, within: SpanSet) -> LoopedOperators:
    """Return the outermost operators in some time that no backward pass runs."""
    trace, events, calls = observation.trace, observation.trace.events, observation.trace.python_calls
    passes = backward_rows(trace)
    rows = events.within(within, tree.rows[tree.tops(observation.thread)])
    rows = rows[~np.isin(rows, passes)]
    starts_ns = events.start_ns[rows]
    is_module = name_mask(trace.names, lambda name: name.startswith(MODULE_PREFIX))[calls.name_id]
    mine = np.flatnonzero(is_module & (calls.thread == observation.thread))
    modules = ThreadCalls(calls.start_ns[mine], calls.end_ns[mine], calls.thread[mine])
    inner = modules.at(np.full(rows.size, observation.thread, np.int64), starts_ns)
    module = np.append(calls.name_id[mine], NONE)[inner]
    keys = np.stack((events.name_id[rows], trace.details.dims_id.at(rows, np.int32(NONE)), module))
    alike = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    return LoopedOperators(rows, np.sort(events.start_ns[passes]).searchsorted(starts_ns), alike, inner)


def looping_library(observation: Observation, found: LoopedOperators, least: float) -> tuple[str, SpanSet] | None:
    """Return the file and the calls of the innermost library function that repeats some operators; None without one.

    Code of torch and of this package does not count, nor do calls that hold a whole step or the loop over steps.

    ``least``: how many operators it has to repeat.
    """
    trace, calls = observation.trace, observation.trace.python_calls
    starts_ns = trace.events.start_ns[found.rows]
    mine = np.flatnonzero(calls.thread == observation.thread)
    inner: tuple[str, SpanSet] | None = None
    for name, places in positions_by(calls.name_id[mine]).items():
        file = frame_of(trace.names[name]).file
        if file is None or _NO_LIBRARY.match(file) or is_of_capture(file) or not is_library(file, trace.own_code):
            continue
        rows = mine[places]
        spans = SpanSet.union_of(calls.start_ns[rows], calls.end_ns[rows])
        if spans.contains(starts_ns).sum() < least or (inner and inner[1].total_ns <= spans.total_ns):
            continue
        if (found.repeated_in(spans, starts_ns) >= FEWEST_CALLS).sum() >= least:
            inner = file, spans
    return inner


def called_by_layers(observation: Observation, rows: Int64) -> Mask:
    """Return whether layers of torch call each operator, not functions of the script; False without Python calls."""
    trace, calls = observation.trace, observation.trace.python_calls
    is_layer = name_mask(trace.names, _OF_LAYERS.match)
    is_own = name_mask(trace.names, lambda name: user_frame([name], trace.own_code) is not None)
    mine = np.flatnonzero((calls.thread == observation.thread) & (is_layer | is_own)[calls.name_id])
    inner = ThreadCalls(calls.start_ns[mine], calls.end_ns[mine], calls.thread[mine]).at(
        np.full(rows.size, observation.thread, np.int64), trace.events.start_ns[rows]
    )
    found: Mask = np.append(is_layer[calls.name_id[mine]], False)[inner]
    return found


def calling_share(observation: Observation, tree: OperatorTree, rows: Int64) -> float:
    """Return the share of the time of some outermost operators or nodes that calling them takes, not what they compute.

    Each takes the usual duration of its name and shapes. What it computes is bounded by its shapes.
    """
    events = observation.trace.events
    place = np.full(len(events), NONE, np.int64)
    place[rows] = np.arange(rows.size)
    outer = np.append(place[tree.rows], NONE)[tree.nearest(place[tree.rows] != NONE)]
    inside = np.flatnonzero(outer != NONE)
    flops, elements = _work(observation, tree.rows[inside])
    shapes = observation.trace.details.dims_id.at(rows, np.int32(NONE)).astype(np.int64)
    most, summed = np.zeros(rows.size), np.zeros(rows.size)
    np.maximum.at(most, outer[inside], elements)
    np.add.at(summed, outer[inside], flops)
    usual = usual_durations(events, rows, shapes)
    _, first = np.unique(np.stack((events.name_id[rows], shapes)), axis=1, return_inverse=True)
    durations_ns = usual.usual_ns[first.reshape(-1)] if rows.size else np.zeros(0)
    work_ns = summed / FLOPS_PER_NS + most / ELEMENTS_PER_NS
    limits_ns = np.where(most > 0, MOST_CALLING_NS, MOST_UNKNOWN_NS)
    return float(np.clip(durations_ns - work_ns, 0.0, limits_ns).sum() / max(durations_ns.sum(), 1.0))


def _work(observation: Observation, rows: Int64) -> tuple[Float64, Float64]:
    """Return for each operator the operations of a product or convolution, and the elements of its largest input."""
    trace, details = observation.trace, observation.trace.details
    ids = np.stack(
        (trace.events.name_id[rows], *(one.at(rows, np.int32(NONE)) for one in (details.dims_id, details.concrete_id)))
    )
    distinct, which = np.unique(ids, axis=1, return_inverse=True)
    found = [_work_of(trace.names[name], *_texts(trace.texts, dims, values)) for name, dims, values in distinct.T]
    works = np.array(found, np.float64).reshape(-1, 2)[which.reshape(-1)]
    return works[:, 0], works[:, 1]


def _texts(texts: tuple[str, ...], dims: int, values: int) -> tuple[str, str]:
    return (texts[dims] if dims != NONE else ""), (texts[values] if values != NONE else "")


def _work_of(name: str, dims: str, values: str) -> tuple[float, float]:
    inputs = read_inputs(dims, "", values)
    elements = (float(np.prod(shape, dtype=np.float64)) for shape in inputs.shapes if shape)
    return _flops(name, inputs), max(elements, default=0.0)


def _flops(name: str, inputs: Inputs) -> float:
    work = _FORMULAS[name].work(inputs) if _MULTIPLIES.match(name) else None
    return float(work.flops) if work else 0.0
