"""DIST002: gradients of a GPU are exchanged by the CPU."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.analysis.operators.names import rows_with_prefix
from traceadvisor.model.breakdown import IDLE_CATEGORIES
from traceadvisor.model.events import Kind
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit


@dataclass(frozen=True, slots=True)
class GlooOnGpu(Rule):
    """Collectives between GPU workers run on the host.

    What it finds: Gloo collectives inside the steps of a process that works on a GPU, and the time in which the device
        idles beside them.
    Why it costs time: Gloo copies tensors to the host, exchanges them there and copies them back. NCCL and RCCL
        exchange them between devices, over NVLink or PCIe, while the host goes on.
    How to fix it: ``init_process_group("nccl")`` (the same name stands for RCCL on AMD). Keep a Gloo group beside it
        only for what lives on the host.
    How the saving is estimated: A bound: between nothing and all the device's idle time beside these collectives, the
        middle being the expected value. A faster exchange still takes time, which a recording without one cannot tell.
    When it may be wrong: Collectives of tensors that live on the host (a barrier, a metric) belong to Gloo; they should
        be rare and short.
    """

    meta = RuleMeta("DIST002", "gloo-on-gpu", "Gradients between GPUs are exchanged by the CPU")
    needs = frozenset({Input.STEPS, Input.DEVICE})

    min_share: float = 0.02
    """Share of the step; a barrier or a metric on the host takes less."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the device's idle time beside Gloo's collectives with the step."""
        rows = [rows_with_prefix(facts.trace, kind, "gloo:") for kind in (Kind.ANNOTATION, Kind.OPERATOR)]
        exchanging = SpanSet.union_all(facts.trace.events.spans(found) for found in rows)
        idle = facts.claim(*IDLE_CATEGORIES) & exchanging
        share = facts.share(idle)
        if share < self.min_share:
            return Clear("idle beside collectives on the host", share, self.min_share, Unit.SHARE)
        return facts.finding(
            claims=idle,
            fix=Fix(
                "Exchange between the devices",
                change='torch.distributed.init_process_group("nccl")',
                not_replayed="what the exchange would take between the devices themselves is not recorded",
            ),
            effort=Effort.LINE,
            evidence=(
                facts.time_per_step("device idle beside collectives on the host", idle),
                facts.time_per_step("in such collectives altogether", exchanging & facts.steps.kept_windows),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=("Several processes on one GPU cannot use NCCL: there Gloo is the only way.",),
        )
