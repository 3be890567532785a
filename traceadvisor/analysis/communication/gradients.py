"""Gradient all-reduces beside the backward pass that they may overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives, step_positions
from traceadvisor.analysis.communication.micro_batches import BackwardPasses
from traceadvisor.analysis.communication.surroundings import surroundings
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.names import BACKWARD_PREFIX
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.communication import Purpose
from traceadvisor.model.events import NONE, EventTable, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import Step
from traceadvisor.model.trace import Trace

_COPIED_BACK = "copy_bucket_to_grad"
"""Operator in which DistributedDataParallel copies reduced buckets to gradients: it follows the all-reduce."""


def reduces_with_all(found: Collectives, world_size: int | None) -> bool:
    """Return whether gradients are reduced over all ranks, and no rank holds a part of a layer or of the model."""
    shares = found.of((Purpose.TENSOR_PARALLEL, Purpose.PIPELINE))
    reduced = found.of((Purpose.GRADIENTS, Purpose.SHARDS))
    sizes = {message.group_size if message else None for message in reduced.messages}
    return bool(sizes) and not len(shares) and sizes <= {None, world_size}


@frozen(eq=False)
class StepGradients:
    """The gradient all-reduces of the kept steps that have a backward pass, by step.

    Of several backward passes in a step, those of micro-batches, the last one that reduces counts: only all-reduces of
    this pass can move beside it.
    """

    rows: Int64
    """The all-reduces, shape ``(k,)``."""

    backward_rows: Int64
    """Compute kernels of the backward passes, shape ``(b,)``."""

    total_ns: Int64
    """Time of all all-reduces of each step, shape ``(n,)``."""

    room_ns: Int64
    """Length of the backward pass on the device, from its first kernel to the end of its last; shape ``(n,)``."""

    tails: SpanSet
    """Time after the backward pass until the all-reduces are done."""

    tail_ns: Int64
    """The same by step, shape ``(n,)``."""


def backward_kernels(trace: Trace, launches: Launches, tree: OperatorTree) -> Mask:
    """Return whether each device operation is a compute kernel that a backward node launches; shape as launches."""
    events = trace.events
    places = surroundings(trace, tree, launches.call_rows)
    inside = places.nearest(lambda name: name.startswith(BACKWARD_PREFIX)) != NONE
    inside &= places.nearest(lambda name: _COPIED_BACK in name) == NONE
    found: Mask = inside & (events.kind[launches.work_rows] == Kind.KERNEL)
    return found


def step_gradients(
    trace: Trace, backward: Launches, passes: BackwardPasses, gradients: Collectives, steps: Sequence[Step]
) -> StepGradients:
    """Compare the gradient all-reduces with the backward passes.

    Args:
        trace: the recording.
        backward: compute kernels that backward nodes launched.
        passes: the backward passes of the recording.
        gradients: the gradient all-reduces of the kept steps.
        steps: the kept steps.
    """
    events, count = trace.events, len(steps)
    mine, behind = _of_last_pass(trace, backward, passes, gradients, steps)
    return _compared(events, backward.work_rows[behind], gradients.rows[mine], steps, count)


def _of_last_pass(
    trace: Trace, backward: Launches, passes: BackwardPasses, gradients: Collectives, steps: Sequence[Step]
) -> tuple[Mask, Mask]:
    """Which all-reduces, and which backward kernels, belong to the last pass of their step that reduces."""
    step = step_positions(trace.events, gradients.rows, steps)
    number = passes.numbers(trace, gradients.call_rows)
    last = np.full(len(steps) + 1, NONE, dtype=np.int64)
    np.maximum.at(last, step, number)
    last[NONE] = NONE
    kernel_step = step_positions(trace.events, backward.work_rows, steps)
    theirs = passes.numbers(trace, backward.call_rows)
    return (number == last[step]) | (number == NONE), (theirs == last[kernel_step]) | (last[kernel_step] == NONE)


def _compared(events: EventTable, rows: Int64, reduced_rows: Int64, steps: Sequence[Step], count: int) -> StepGradients:
    """Compare some all-reduces with the backward kernels beside them."""
    backward, reduced = step_positions(events, rows, steps), step_positions(events, reduced_rows, steps)
    ends = _latest(events, rows, backward, count)
    starts = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(starts, backward[backward != NONE], events.start_ns[rows[backward != NONE]])
    done = _latest(events, reduced_rows, reduced, count)
    both = (ends >= 0) & (done >= 0)
    inside = reduced != NONE
    durations_ns = events.duration_ns[reduced_rows[inside]]
    total_ns = np.bincount(reduced[inside], weights=durations_ns, minlength=count).astype(np.int64)
    after = np.maximum(done, ends)[both]
    return StepGradients(
        reduced_rows,
        rows[backward != NONE],
        total_ns[both],
        (ends - starts)[both],
        SpanSet.union_of(ends[both], after),
        after - ends[both],
    )


def _latest(events: EventTable, rows: Int64, position: Int64, count: int) -> Int64:
    """Return the latest end in each window; NONE without an event."""
    ends = np.full(count, NONE, dtype=np.int64)
    inside = position != NONE
    np.maximum.at(ends, position[inside], events.end_ns[rows[inside]])
    return ends
