"""Backward passes of micro-batches, and reductions of gradients that a later one of the same update repeats."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from traceadvisor.analysis.communication.collectives import Collectives
from traceadvisor.analysis.operators.by_thread import ThreadSpans
from traceadvisor.analysis.operators.forward import forward_operators
from traceadvisor.analysis.operators.launches import Launches
from traceadvisor.analysis.operators.optimizer import optimizer_steps
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64, Mask
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.trace import Trace


@frozen(eq=False)
class BackwardPasses:
    """The backward passes of a recording: kernels of a forward pass are launched between two of them."""

    forward_ns: Int64
    """When kernels of forward passes were launched, or their operators ran, ascending."""

    def numbers(self, trace: Trace, call_rows: Int64) -> Int64:
        """Return the number of the pass that each launch belongs to; ascending with time, not consecutive.

        A call that is not known (NONE) belongs to pass NONE.
        """
        starts = np.append(trace.events.start_ns, 0)[call_rows]
        return np.where(call_rows == NONE, NONE, np.searchsorted(self.forward_ns, starts, side="right"))


def backward_passes(trace: Trace, launches: Launches, is_backward: Mask, thread: int) -> BackwardPasses:
    """Tell backward passes apart.

    Args:
        trace: the recording.
        launches: its GPU operations.
        is_backward: whether a backward node launched each of them, shape as ``launches``.
        thread: the training thread, which launches forward passes.
    """
    events, calls = trace.events, launches.call_rows
    forward = (calls != NONE) & ~is_backward & (events.kind[launches.work_rows] == Kind.KERNEL)
    called = calls[forward]
    called = called[events.thread[called] == thread]
    in_optimizer = ThreadSpans.of(events, optimizer_steps(trace).rows).hold(
        events.thread[called], events.start_ns[called]
    )
    return BackwardPasses(np.unique(events.start_ns[called[~in_optimizer]]))


def backward_passes_on_cpu(trace: Trace, tree: OperatorTree) -> BackwardPasses:
    """Tell backward passes apart without a GPU: by the operators that they go back through."""
    made = forward_operators(trace, tree)[1]
    return BackwardPasses(np.unique(trace.events.start_ns[tree.rows[made[made != NONE]]]))


def passes_per_update(trace: Trace, passes: BackwardPasses, backward: Launches) -> int:
    """Return the usual number of backward passes before an optimizer step; 1 if no step shows it."""
    step_ns = np.sort(trace.events.start_ns[optimizer_steps(trace).rows])
    update = np.searchsorted(step_ns, trace.events.start_ns[backward.call_rows], side="left")
    pairs = np.unique(np.stack((update, passes.numbers(trace, backward.call_rows))), axis=1)[0]
    counts = np.unique(pairs[pairs < step_ns.size], return_counts=True)[1]
    return int(np.median(counts)) if counts.size else 1


def repeated_later(trace: Trace, passes: BackwardPasses, reduced: Collectives) -> Mask:
    """Return whether a later backward pass before the same optimizer step reduces the same messages again.

    ``reduced``: reductions of gradients.
    """
    steps = optimizer_steps(trace)
    step_ns = np.sort(trace.events.start_ns[steps.rows])
    starts = np.append(trace.events.start_ns, 0)[reduced.call_rows]
    update, number = np.searchsorted(step_ns, starts, side="left"), passes.numbers(trace, reduced.call_rows)
    known = (reduced.call_rows != NONE) & (update < step_ns.size) & (not steps.has_closure)
    rounds: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place in np.flatnonzero(known).tolist():
        rounds[int(update[place])][int(number[place])].append(place)
    found = np.zeros(len(reduced), dtype=np.bool_)
    size_bytes = reduced.size_bytes
    for mine in rounds.values():
        last = sorted(size_bytes[mine[max(mine)]].tolist())
        for one, places in mine.items():
            found[places] = one != max(mine) and sorted(size_bytes[places].tolist()) == last
    return found
