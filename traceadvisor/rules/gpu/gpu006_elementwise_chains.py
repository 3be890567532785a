from __future__ import annotations

from traceadvisor.analysis.operators.optimizer import work_on_parameters
from traceadvisor.model.arrays import without
from traceadvisor.model.findings import Effort, Evidence, Fix, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, clear_of, finding_of, frozen
from traceadvisor.rules.gpu.elementwise_runs import elementwise_runs


@frozen
class ElementwiseChains(Rule):
    """Long runs of elementwise kernels take a significant part of the step.

    What it finds: Elementwise kernels (additions, activations, casts, masks) that follow each other on a stream, by the
        names of torch's kernels. Kernels of the optimizer, of matrix operations, and those that ``torch.compile`` has
        fused do not count.
    Why it costs time: Each kernel reads its input from GPU memory and writes its result back, for one operation per
        element. Most of this traffic is avoidable.
    How to fix it: ``torch.compile`` fuses such a run into one kernel that reads and writes once. Fused operators exist
        for common cases.
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
            return clear_of(facts, label, share, self.min_share, Unit.SHARE, fix=fix, judged_share=judged)
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
