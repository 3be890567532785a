"""GPU006: elementwise kernels follow one another, each reading what the last one wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceadvisor.analysis.operators.launches import work_within
from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.replay.fixes.kernels import FasterKernels
from traceadvisor.rules.base import Rule
from traceadvisor.rules.gpu.elementwise_runs import ElementwiseRuns, elementwise_runs


@dataclass(frozen=True, slots=True)
class ElementwiseChains(Rule):
    """Long runs of elementwise kernels take a noticeable part of the step.

    What it finds
        Elementwise kernels (additions, activations, casts, masks) that follow one another on a stream without any other
        kernel between them, outside the optimizer and the operators that multiply matrices.

    Why it costs time
        Each one reads its input from device memory and writes its result back, for one operation on every element. What
        memory carries decides their time, and most of it is carried to and fro in vain.

    How to fix it
        ``torch.compile`` makes one kernel of such a run, which reads and writes once. Ready-made fused operators exist
        for the usual ones.

    How the saving is estimated
        The step is replayed with runs whose excess over their longest kernel is halved (at the least nothing, at the
        most all of it goes). Where the replay is not to be believed, a bound: between nothing and all of that excess.

    When it may be wrong
        Kernels that follow one another need not work on the same data. Where autograd needs what lies between, it is
        written all the same. Compiling takes minutes, and again for every new shape.
    """

    meta: ClassVar = RuleMeta(
        id="GPU006",
        name="elementwise-chains",
        title="Runs of elementwise kernels pass data through memory",
        needs=frozenset({Input.STEPS, Input.DEVICE}),
        refines=frozenset({"GPU011"}),
    )
    popular_fix: ClassVar = "Fusing elementwise kernels"

    min_share: float = 0.1
    """Share of the step in such runs; a ResNet-50, in which little can be fused, comes to 1 to 6%."""

    fewest_in_run: int = 3
    """Kernels in a run: a batch norm, its activation and a residual make pairs in any network."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the time of runs with the step."""
        marks = rows_with_prefix(facts.trace, Kind.ANNOTATION, "Optimizer.")
        updating = work_within(facts.trace.events, facts.launches, marks, facts.steps.kept_windows)
        kernels = np.setdiff1d(facts.device_work.kernels, updating.work_rows)
        runs = elementwise_runs(facts.trace, kernels, self.fewest_in_run, facts.device_work.calls.kernel_rows)
        claims = facts.trace.events.spans(runs.rows) & facts.claim(Category.KERNEL)
        share = facts.share(claims)
        fix = _fused(runs)
        if share < self.min_share:
            return Clear("runs of elementwise kernels", share, self.min_share, Unit.SHARE, what_if=fix)
        steps, duration_ns = len(facts.steps.kept), facts.trace.events.duration_ns[runs.rows]
        excess_ns = float((duration_ns * (1 - runs.least_share)).sum()) / steps
        saving = facts.what_if(fix, excess_ns)
        return Finding(
            rule=self.meta,
            claims=claims,
            saving=saving,
            confidence=facts.confidence(saving),
            effort=Effort.LINE,
            evidence=(
                Evidence("runs", runs.count / steps, Unit.PER_STEP),
                Evidence("kernels in them", runs.rows.size / steps, Unit.PER_STEP),
                Evidence("their time", facts.per_step_ns(claims), Unit.NS_PER_STEP),
                Evidence("beyond the longest kernel of each run", excess_ns, Unit.NS_PER_STEP),
            ),
            fix=Fix("Let a compiler make one kernel of each run", "model = torch.compile(model)"),
            caveats=("Compiling takes minutes, and again for every new shape.",),
            what_ifs=(fix,),
        )


def _fused(runs: ElementwiseRuns) -> FasterKernels:
    return FasterKernels(
        rows=runs.rows,
        low=np.ones_like(runs.least_share),
        expected=2 / (1 + runs.least_share),
        high=1 / np.maximum(runs.least_share, 1 / max(runs.rows.size, 1)),
    )
