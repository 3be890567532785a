"""Runs of consecutive elementwise kernels on a stream, which a compiler could fuse."""

from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, among
from traceadvisor.model.trace import Trace
from traceadvisor.replay.fixes.kernels import FasterKernels

_ELEMENTWISE = re.compile(r"elementwise_kernel", re.IGNORECASE)
"""``vectorized_elementwise_kernel``, ``unrolled_elementwise_kernel``, ``elementwise_kernel``: torch's names, defined in
``aten/src/ATen/native/cuda/CUDALoops.cuh``."""


@frozen(eq=False)
class ElementwiseRuns:
    """The kernels of all runs; arrays have shape ``(n,)``."""

    rows: Int64
    """Rows of the event table, ascending."""

    least_share: Float64
    """For each kernel, the share of its run's time that the longest kernel takes (one pass over the data)."""

    count: int
    """Number of runs."""

    @property
    def with_half_spared(self) -> FasterKernels:
        """The fix: half of each run's time beyond its longest kernel disappears (range: none to all of it)."""
        return FasterKernels(
            rows=self.rows,
            low=np.ones_like(self.least_share),
            expected=2 / (1 + self.least_share),
            high=1 / np.maximum(self.least_share, 1 / max(self.rows.size, 1)),
        )


def elementwise_runs(trace: Trace, kernels: Int64, fewest: int, apart: Int64) -> ElementwiseRuns:
    """Return the runs with at least ``fewest`` kernels.

    ``fewest``: kernels in the shortest run that counts. ``apart``: rows of kernels that a compiler cannot fuse; they
    may be part of a run but are not returned.
    """
    events = trace.events
    ordered = kernels[np.lexsort((events.start_ns[kernels], events.stream[kernels]))]
    elementwise = name_mask(trace.names, lambda name: bool(_ELEMENTWISE.search(name)))[events.name_id[ordered]]
    stream = events.stream[ordered]
    begins = np.concatenate(([True], (elementwise[1:] != elementwise[:-1]) | (stream[1:] != stream[:-1])))[
        : ordered.size
    ]
    run = np.cumsum(begins) - 1
    chosen = elementwise & (np.bincount(run, minlength=ordered.size)[run] >= fewest)
    chosen &= ~among(ordered, apart)
    rows, run, duration_ns = ordered[chosen], run[chosen], events.duration_ns[ordered[chosen]]
    total_ns = np.bincount(run, weights=duration_ns)
    longest_ns = np.zeros_like(total_ns)
    np.maximum.at(longest_ns, run, duration_ns)
    share = longest_ns[run] / np.maximum(total_ns[run], 1)
    by_row = np.argsort(rows)
    return ElementwiseRuns(rows[by_row], share[by_row], int(np.unique(run).size))
