"""The optimizer: its own time and GPU operations, without the training passes that it runs in a closure.

L-BFGS and Lightning run the forward and backward pass inside ``Optimizer.step``: the script passes a function, the
closure, that computes the loss and its gradients.
"""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.innermost import are_outermost, outermost_rows
from traceadvisor.analysis.operators.launches import Launches, work_within
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX, name_mask, rows_named, rows_with_prefix
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, among, either
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.once import once
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.trace import Trace

STEP_PREFIX = "Optimizer.step#"

_CLOSURE_FRAME = re.compile(r"\.py\(\d+\): closure$")
"""The usual name of the function, in scripts that follow PyTorch's documentation and in Lightning."""

_STEP_FRAME = re.compile(r"\.py\(\d+\): step$")


@frozen(eq=False)
class OptimizerSteps:
    """All ``Optimizer.step`` calls of a recording."""

    rows: Int64
    """Rows of the event table, ascending."""

    outermost: Int64
    """Those that no other one calls, as an optimizer that wraps another one does; ascending."""

    closures: SpanSet
    """Time of the closures that they run."""

    own: SpanSet
    """Time in the calls without their closures."""

    has_closure: bool
    """Whether most of the outermost calls run a closure."""


@once
def optimizer_steps(trace: Trace) -> OptimizerSteps:
    """Return the optimizer's steps.

    The first closure of a step begins with the step, a later one with the first operator that shares a sequence number
    with a backward node of that step. A closure ends with the last backward node before the next closure. Where Python
    calls were recorded, the calls of functions named ``closure`` count as a whole.
    """
    events, rows = trace.events, rows_with_prefix(trace, Kind.ANNOTATION, STEP_PREFIX)
    steps, outermost = events.spans(rows), outermost_rows(events, rows)
    backward = rows_with_prefix(trace, Kind.OPERATOR, BACKWARD_PREFIX)
    around = rows[~_inside_backward(trace, rows, backward)]
    outer = events.spans(around)
    nested = events.within(outer, backward)
    if not nested.size:
        return OptimizerSteps(rows, outermost, SpanSet.empty(), steps, has_closure=False)
    forward = _linked(trace, nested, around)
    begins_ns = events.start_ns[around[are_outermost(events.start_ns[around], events.end_ns[around])]]
    closures = SpanSet.of(*_extents(trace, begins_ns, forward, nested)) | _closure_calls(trace, around, nested)
    within = closures & outer
    callers = around[among(around, outermost)]
    holding = np.searchsorted(events.start_ns[nested], events.start_ns[callers], side="left") < np.searchsorted(
        events.start_ns[nested], events.end_ns[callers], side="left"
    )
    inner = rows[_inside_backward(trace, rows, backward)]
    own = (steps - within) | events.spans(inner)
    has_closure = 2 * int(holding.sum()) > callers.size
    return OptimizerSteps(rows, outermost, within - events.spans(inner), own, has_closure=has_closure)


@once
def wrapping_steps(trace: Trace) -> SpanSet:
    """Return the time of functions named ``step`` up to the end of the optimizer's step that they run.

    A library may change the gradients there, as for differential privacy. Those that hold a backward pass are
    training steps.
    """
    calls, events, rows = trace.python_calls, trace.events, optimizer_steps(trace).outermost
    named = np.flatnonzero(name_mask(trace.names, _STEP_FRAME.search)[calls.name_id])
    begins_ns, ends_ns = calls.start_ns[named], calls.end_ns[named]
    nodes_ns = np.sort(events.start_ns[rows_with_prefix(trace, Kind.OPERATOR, BACKWARD_PREFIX)])
    first, last = (events.start_ns[rows].searchsorted(at) for at in (begins_ns, ends_ns))
    is_around = (last > first) & (nodes_ns.searchsorted(begins_ns) == nodes_ns.searchsorted(ends_ns))
    return SpanSet.union_of(begins_ns[is_around], events.end_ns[rows[last[is_around] - 1]])


def optimizer_work(trace: Trace, launches: Launches, windows: SpanSet) -> Launches:
    """Return the GPU operations that run in some windows and that the optimizer launched itself."""
    work = _launched_by_optimizer(trace, launches)
    within = windows.contains(trace.events.start_ns[work.work_rows])
    return Launches(work.work_rows[within], work.call_rows[within])


@once
def _launched_by_optimizer(trace: Trace, launches: Launches) -> Launches:
    """Return all GPU operations that the optimizer launched itself."""
    events, steps = trace.events, optimizer_steps(trace)
    rows, calls = (rows[launches.call_rows != NONE] for rows in (launches.work_rows, launches.call_rows))
    own = ThreadSpans.of(events, steps.rows).hold(events.thread[calls], events.start_ns[calls])
    own &= ~steps.closures.contains(events.start_ns[calls])
    return Launches(rows[own], calls[own])


def work_on_parameters(trace: Trace, launches: Launches, windows: SpanSet) -> Int64:
    """Return the GPU operations that update parameters or reset gradients: compiling the model does not fuse them."""
    resetting = work_within(trace.events, launches, zero_grad_rows(trace), windows)
    return either(optimizer_work(trace, launches, windows).work_rows, resetting.work_rows)


def zero_grad_rows(trace: Trace) -> Int64:
    """Return the ranges in which gradients are reset."""
    return rows_with_prefix(trace, Kind.ANNOTATION, "Optimizer.zero_grad#")


def additions_to_zeros(trace: Trace, launches: Launches, windows: SpanSet, fills: Launches) -> Int64:
    """Return rows that add gradients to the zeros; none if several backward passes accumulate between two memsets."""
    accumulating = rows_named(trace, Kind.OPERATOR, lambda name: name.endswith("torch::autograd::AccumulateGrad"))
    added = work_within(trace.events, launches, accumulating, windows).work_rows
    return added if added.size <= fills.work_rows.size else added[:0]


def _inside_backward(trace: Trace, rows: Int64, backward: Int64) -> np.typing.NDArray[np.bool_]:
    """Whether each step begins inside a backward node of its thread: a hook that updates a parameter at once."""
    events = trace.events
    return ThreadSpans.of(events, backward).hold(events.thread[rows], events.start_ns[rows])


def _linked(trace: Trace, nested: Int64, around: Int64) -> Int64:
    """Return operators inside the steps, on their threads, that share a sequence number with a backward node."""
    events, sequence = trace.events, trace.details.sequence
    numbers = sequence.at(nested, np.int64(NONE))
    wanted = np.unique(numbers[numbers != NONE])
    rows = sequence.rows[np.isin(sequence.values, wanted)]
    named = name_mask(trace.names, lambda name: "Backward" in name or name.startswith(BACKWARD_PREFIX))
    rows = rows[~named[events.name_id[rows]] & np.isin(events.thread[rows], events.thread[around])]
    return events.within(events.spans(around), rows)


def _extents(trace: Trace, begins_ns: Int64, forward: Int64, nested: Int64) -> list[tuple[int, int]]:
    """Return the span of each closure, in order of time; ``begins_ns`` holds the starts of the outermost steps."""
    events = trace.events
    rows = np.concatenate((forward, nested))
    is_forward = np.arange(rows.size) < forward.size
    order = np.lexsort((~is_forward, events.start_ns[rows]))
    starts, ends = events.start_ns[rows][order].tolist(), events.end_ns[rows][order].tolist()
    holders = (np.searchsorted(begins_ns, starts, side="right") - 1).tolist()
    extents: list[tuple[int, int]] = []
    begin: int | None = None
    end: int | None = None
    holder: int | None = None
    for start, last, forward_pass, step in zip(starts, ends, is_forward[order].tolist(), holders, strict=True):
        if begin is not None and (step != holder or (forward_pass and end is not None and start >= end)):
            extents += [(begin, end)] if end is not None else []
            begin = end = None
        if begin is None:
            begin = start if step == holder else int(begins_ns[step])
        holder = step
        if not forward_pass:
            end = last if end is None else max(end, last)
    return extents + ([(begin, end)] if begin is not None and end is not None else [])


def _closure_calls(trace: Trace, around: Int64, nested: Int64) -> SpanSet:
    """Return the time of Python functions named ``closure`` that hold a backward pass."""
    calls, events = trace.python_calls, trace.events
    named = name_mask(trace.names, _CLOSURE_FRAME.search)
    chosen = np.flatnonzero(named[calls.name_id] & np.isin(calls.thread, events.thread[around]))
    begun = np.searchsorted(events.start_ns[nested], calls.start_ns[chosen], side="left")
    over = np.searchsorted(events.start_ns[nested], calls.end_ns[chosen], side="left")
    chosen = chosen[over > begun]
    return SpanSet.union_of(calls.start_ns[chosen], calls.end_ns[chosen])
