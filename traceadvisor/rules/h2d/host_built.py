"""Tensors that the training thread makes on the host and copies to the device at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.observation import Observation
from traceadvisor.analysis.operators.launches import Launches, work_within
from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.tree import OperatorTree
from traceadvisor.model.arrays import Int64
from traceadvisor.model.events import NONE, Kind
from traceadvisor.model.spans import SpanSet

FACTORIES = frozenset(
    f"aten::{name}"
    for name in (
        *("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "eye", "arange", "linspace"),
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "tril", "triu"),
    )
)
"""Operators that make a tensor's values. Those that fill one in place are not among them: so are parameters made."""

MOST_BYTES_PER_NS = 100
"""No thread fills memory faster; a larger copy is of something else. Recordings of 2021 hold an ``aten::zeros`` of the
profiler's own before each named range."""


@dataclass(frozen=True, slots=True, eq=False)
class HostBuilt:
    """What was made and copied; arrays of rows of the event table."""

    makers: Int64
    """The operators that make tensors, shape ``(n,)``."""

    movers: Int64
    """For each, the operator that copies it, the next on the thread."""

    copies: Launches
    """The copies and their calls."""


def host_built(observation: Observation, tree: OperatorTree, windows: SpanSet) -> HostBuilt:
    """Find operators that make a tensor, the next of which copies to the device, outside the data loader.

    Args:
        observation: the recording.
        tree: its operators.
        windows: the steps that count, by when the copy runs.
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
    copies = [work_within(events, uploads, movers[at : at + 1], windows) for at in range(movers.size)]
    moved = [int(events.byte_count[copy.work_rows].sum()) for copy in copies]
    could_make = np.array(moved, np.int64) <= events.duration_ns[makers] * MOST_BYTES_PER_NS
    chosen = could_make & np.array([copy.work_rows.size > 0 for copy in copies], np.bool_)
    return HostBuilt(makers[chosen], movers[chosen], work_within(events, uploads, movers[chosen], windows))
