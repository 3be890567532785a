"""GPU006: elementwise kernels follow one another, each reading what the last one wrote."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.rules.base import Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit
from traceadvisor.rules.gpu.elementwise_runs import elementwise_runs


@dataclass(frozen=True, slots=True)
class ElementwiseChains(Rule):
    """Long runs of elementwise kernels take a noticeable part of the step.

    What it finds: Elementwise kernels (additions, activations, casts, masks) that follow one another on a stream
        without any other kernel between them, outside the optimizer and the operators that multiply matrices.
    Why it costs time: Each one reads its input from device memory and writes its result back, for one operation on
        every element. What memory carries decides their time, and most of it is carried to and fro in vain.
    How to fix it: ``torch.compile`` makes one kernel of such a run, which reads and writes once. Ready-made fused
        operators exist for the usual ones.
    How the saving is estimated: The step is replayed with runs whose excess over their longest kernel is halved (at the
        least nothing, at the most all of it goes).
    When it may be wrong: Kernels that follow one another need not work on the same data. Where autograd needs what lies
        between, it is written all the same. Compiling takes minutes, and again for every new shape.
    """

    meta = RuleMeta("GPU006", "elementwise-chains", "Runs of elementwise kernels pass data through memory")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    refines = frozenset({"GPU011"})
    popular_fix = "Fusing elementwise kernels"

    min_share: float = 0.1
    """Share of the step in such runs; a ResNet-50, in which little can be fused, comes to 1 to 6%."""

    fewest_in_run: int = 3
    """Kernels in a run: a batch norm, its activation and a residual make pairs in any network."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the time of runs with the step."""
        marks = rows_with_prefix(facts.trace, Kind.ANNOTATION, "Optimizer.")
        updating = work_within(facts.trace.events, facts.launches, marks, facts.steps.kept_windows)
        kernels = np.setdiff1d(facts.device_work.kernels, updating.work_rows)
        runs = elementwise_runs(facts.trace, kernels, self.fewest_in_run, facts.device_work.calls.kernel_rows)
        claims = facts.exposed(runs.rows, Category.KERNEL)
        share = facts.share(claims)
        fix = Fix(
            "Let a compiler make one kernel of each run", "model = torch.compile(model)", what_if=runs.with_half_spared
        )
        if share < self.min_share:
            return facts.clear("runs of elementwise kernels", share, self.min_share, Unit.SHARE, fix=fix)
        excess_ns = float((facts.trace.events.duration_ns[runs.rows] * (1 - runs.least_share)).sum()) / facts.step_count
        return facts.finding(
            claims=claims,
            fix=fix,
            effort=Effort.LINE,
            evidence=(
                facts.count_per_step("runs", runs.count),
                facts.count_per_step("kernels in them", runs.rows.size),
                facts.time_per_step("their time", claims),
                Evidence("beyond the longest kernel of each run", excess_ns, Unit.NS_PER_STEP),
            ),
            most_ns=excess_ns,
            caveats=("Compiling takes minutes, and again for every new shape.",),
        )
