from __future__ import annotations

from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.model.breakdown import IDLE_CATEGORIES
from traceadvisor.model.events import Kind
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen


@frozen
class GlooOnGpu(Rule):
    """The CPU runs the collectives of GPU ranks, through Gloo.

    What it finds: Gloo collectives inside the steps of a process that uses a GPU, and the GPU idle time during these
        collectives.
    Why it costs time: Gloo copies tensors to CPU memory, reduces them there and copies them back. NCCL and RCCL
        transfer them between GPUs over NVLink or PCIe, while the CPU continues.
    How to fix it: Use ``init_process_group("nccl")``, which selects RCCL on AMD GPUs. Keep a Gloo group only for
        tensors in CPU memory.
    How the saving is estimated: Upper limit: the GPU idle time during these collectives. Half of it is expected: NCCL
        takes time, too.
    When it may be wrong: Collectives on CPU tensors, such as a barrier or a metric, belong to Gloo. They should be rare
        and short.
    """

    meta = RuleMeta("DIST002", "gloo-on-gpu", "The CPU runs the gradient all-reduce between GPUs")
    needs = frozenset({Input.STEPS, Input.DEVICE})
    of_cuda = True
    claims = frozenset(IDLE_CATEGORIES)

    min_share: float = 0.02
    """Share of the step. A barrier or a metric on the CPU takes less."""

    def check(self, facts: Facts) -> Outcome:
        rows = [rows_with_prefix(facts.trace, kind, "gloo:") for kind in (Kind.ANNOTATION, Kind.OPERATOR)]
        gloo_spans = SpanSet.union_all(facts.trace.events.spans(found) for found in rows)
        idle = facts.claim(*IDLE_CATEGORIES) & gloo_spans
        share = facts.share(idle)
        if share < self.min_share:
            return Clear("GPU idle time during CPU collectives", share, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=idle,
            fix=Fix(
                "Run collectives on the GPUs with NCCL",
                change='torch.distributed.init_process_group("nccl")',
                not_replayed="a recording with Gloo does not show how long NCCL would take",
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("GPU idle time during CPU collectives", idle),
                facts.time_per_step("total time in CPU collectives", gloo_spans & facts.steps.typical_windows),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=("Several processes on one GPU cannot use NCCL. Gloo is then the only option.",),
        )
