from __future__ import annotations

import re

import numpy as np

from traceadvisor.analysis.operators.names import name_mask
from traceadvisor.analysis.operators.optimizer import work_on_parameters
from traceadvisor.model.arrays import Float64, Int64, among, without
from traceadvisor.model.findings import Effort, Evidence, Fix, Unit
from traceadvisor.model.trace import Trace
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, clear_of, finding_of, frozen

_ELEMENTWISE = re.compile(r"elementwise_kernel", re.IGNORECASE)
"""``vectorized_elementwise_kernel``, ``unrolled_elementwise_kernel``, ``elementwise_kernel``: torch's names, defined in
``aten/src/ATen/native/cuda/CUDALoops.cuh``."""


@frozen
class ElementwiseChains(Rule):
    """Long runs of elementwise kernels take a significant part of the step.

    What it finds: Elementwise kernels (additions, activations, casts, masks) that follow each other on a stream, by the
        names of torch's kernels. Kernels of the optimizer, of matrix operations, and those that ``torch.compile`` has
        fused do not count.
    Why it costs time: Each kernel reads its input from GPU memory and writes its result back, for one operation per
        element. Most of this traffic is avoidable.
    How to fix it: Use ``torch.compile``, which fuses such a run into one kernel that reads and writes once. Fused
        operators exist for common cases.
    How the saving is estimated: A fused run takes at least as long as its longest kernel. The step is simulated without
        half of the rest of each run (range: none to all of it).
    When it may be wrong: Consecutive kernels may work on different data. Intermediate results that autograd needs are
        written in any case. Compilation takes minutes, and repeats for each new shape.
    """

    meta = RuleMeta("GPU006", "elementwise-chains", "Runs of elementwise kernels are not fused")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    refines = frozenset({"GPU011"})
    popular_fix = "Fusing elementwise kernels"
    claims = frozenset({Category.KERNEL})

    min_share: float = 0.1
    """Share of the step in such runs. For a ResNet-50, where little can be fused, it is 1 to 6%."""

    fewest_in_run: int = 3
    """Kernels in the shortest run that counts. Any network has pairs: a batch norm, its activation and a residual."""

    def check(self, facts: Facts) -> Outcome:
        trace, work, windows = facts.trace, facts.device_work, facts.steps.typical_windows
        kernels = without(work.kernels, work_on_parameters(trace, facts.launches, windows))
        runs = elementwise_runs(trace, kernels, self.fewest_in_run, work.calls.kernel_rows)
        claims = facts.exposed(runs.rows, Category.KERNEL)
        share = facts.share(claims)
        fix = Fix(
            "Fuse these kernels with torch.compile",
            "model = torch.compile(model)",
            what_if=runs.with_half_spared,
            settings={"compile": True},
            needs=frozenset({Part.MODEL}),
            otherwise=Fix("Fuse these kernels: turn on the compilation of the serving engine"),
        )
        if share < self.min_share:
            label, judged = "time in runs of elementwise kernels", work.judged_share(work.by_kernel.is_known)
            return clear_of(facts, label, share, self.min_share, fix=fix, judged_share=judged)
        excess_ns = float((trace.events.duration_ns[runs.rows] * (1 - runs.least_share)).sum()) / facts.step_count
        return finding_of(
            facts,
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("runs of elementwise kernels", runs.count),
                facts.count_per_step("kernels in these runs", runs.rows.size),
                facts.time_per_step("kernel time of these runs", claims),
                Evidence("time beyond the longest kernel of each run", excess_ns, Unit.NS_PER_STEP),
            ),
            most_ns=excess_ns,
            caveats=("Compilation takes minutes and repeats for each new shape.",),
        )


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
    events, named = trace.events, name_mask(trace.names, _ELEMENTWISE.search)
    if not named[events.name_id[kernels]].any():
        return ElementwiseRuns(kernels[:0], np.empty(0), 0)
    ordered = kernels[np.lexsort((events.start_ns[kernels], events.stream[kernels]))]
    elementwise = named[events.name_id[ordered]]
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
