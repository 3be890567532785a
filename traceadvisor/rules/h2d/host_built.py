"""Tensors that the training thread creates on the CPU and copies to the GPU right away."""

from __future__ import annotations

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.launches import Launches, work_within
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.runtime_calls import blocking_rows
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Facts

FACTORIES = frozenset(
    f"aten::{name}"
    for name in (
        *("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "eye", "arange", "linspace"),
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "tril", "triu"),
    )
)
"""Operators that create a tensor with values. Operators that fill a tensor in place are not included, because they
initialise parameters."""

MOST_BYTES_PER_NS = 100
"""No thread fills memory faster, so a larger copy is of something else. In recordings of 2021, the profiler adds its
own ``aten::zeros`` before each named range."""


@frozen(eq=False)
class HostBuilt:
    """Tensors created on the CPU and their copies, as rows of the event table."""

    makers: Int64
    """Operators that create tensors, shape ``(n,)``."""

    movers: Int64
    """For each maker, the operator that copies the tensor: the next one on the thread."""

    copies: Launches
    """The copies and their calls."""

    def calls(self, facts: Facts) -> frozenset[int]:
        """Return the calls that copy, and those that wait within the same operators."""
        events, waits = facts.trace.events, blocking_rows(facts.trace, facts.launches)
        waits = waits[events.spans(self.movers).contains(events.start_ns[waits])]
        waits = waits[events.thread[waits] == facts.observation.thread]
        return frozenset({*self.copies.call_rows.tolist(), *waits.tolist()} - {NONE})

    def operators(self, facts: Facts) -> tuple[str, ...]:
        """Return the names of the creating operators, the one with the most CPU time first."""
        events = facts.trace.events
        spent_ns = np.bincount(events.name_id[self.makers], events.duration_ns[self.makers])
        names = np.argsort(-spent_ns, kind="stable")
        return tuple(facts.trace.names[name] for name in names.tolist() if spent_ns[name] > 0)


def host_built(observation: Observation, tree: OperatorTree, windows: SpanSet) -> HostBuilt:
    """Find operators outside the data loader that create a tensor which the next operator copies to the GPU.

    ``windows``: only copies that start in these windows count.
    """
    events, launches = observation.trace.events, observation.launches
    top = np.flatnonzero((tree.parent == NONE) & (tree.thread == observation.thread))
    makes = name_mask(observation.trace.names, lambda name: name in FACTORIES)[events.name_id[tree.rows[top]]][:-1]
    makers, movers = tree.rows[top[:-1]][makes], tree.rows[top[1:]][makes]
    loading = observation.loading
    apart = loading.measure_until(events.start_ns[movers]) > loading.measure_until(events.start_ns[makers])
    makers, movers = makers[~apart], movers[~apart]
    is_copy = events.kind[launches.work_rows] == Kind.COPY_H2D
    uploads = Launches(launches.work_rows[is_copy], launches.call_rows[is_copy])
    copies = work_within(events, uploads, movers, windows)
    called_ns = events.start_ns[copies.call_rows]
    order = np.argsort(called_ns, kind="stable")
    first, last = (
        np.searchsorted(called_ns[order], at[movers], side="left") for at in (events.start_ns, events.end_ns)
    )
    moved = np.append(0, np.cumsum(events.byte_count[copies.work_rows[order]]))
    could_make = moved[last] - moved[first] <= events.duration_ns[makers] * MOST_BYTES_PER_NS
    chosen = could_make & (last > first)
    return HostBuilt(makers[chosen], movers[chosen], work_within(events, uploads, movers[chosen], windows))
