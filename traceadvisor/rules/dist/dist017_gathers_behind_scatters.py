from __future__ import annotations

from traceadvisor.analysis.communication.queues import LEAST_QUEUED_SHARE
from traceadvisor.model.communication import Purpose
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import late_ranks, not_validated

_FULLY_SHARD = "model.set_separate_reduce_scatter_group()  # once, after fully_shard(model)"


@frozen
class GathersBehindScatters(Rule):
    """All-gathers of parameters wait in the queue behind reduce-scatters of gradients.

    What it finds: All-gathers of sharded modules that were launched while a reduce-scatter of the same stream ran and
        began when it ended, and the time in which the GPU computes nothing meanwhile.
    Why it costs time: Collectives of one process group run one after the other, even on streams of their own: they
        share a communicator. In the backward pass, the next module's parameters then wait for the last module's
        gradients.
    How to fix it: Give the reduce-scatter a process group of its own: ``model.set_separate_reduce_scatter_group()``
        with ``fully_shard`` (torch 2.13), ``--create-all-gather-group`` with Megatron. Both then run at the same time.
    How the saving is estimated: Upper limit: the time that each all-gather waited, as far as no compute ran from the
        start of the reduce-scatter to the end of the all-gather.
    When it may be wrong: If one collective already uses the whole network, both together take as long as one after the
        other. A second communicator takes GPU memory.
    """

    meta = RuleMeta("DIST017", "gathers-behind-scatters", "All-gathers of parameters wait behind reduce-scatters")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.LAUNCHES, Input.COLLECTIVES})
    training_only = True
    refines = frozenset({"DIST003", "DIST009"})
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = LEAST_QUEUED_SHARE
    """Share of the step. A second communicator takes memory; less is not worth it."""

    def check(self, facts: Facts) -> Outcome:
        mine = facts.collectives.of((Purpose.SHARDS,))
        if not len(mine):
            return Skipped("No communication of sharded modules (FSDP, ZeRO) was recorded.")
        queued = facts.queued_gathers
        exposed = facts.exposed_alone(mine)
        claims, most_ns = exposed & queued.spans, queued.reach_ns(exposed)
        share = most_ns / max(facts.steps.typical_windows.total_ns, 1)
        if share < self.min_share:
            label = "exposed communication while an all-gather waits for a reduce-scatter"
            return Clear(label, share, self.min_share, Unit.SHARE)
        return finding_of(
            facts,
            claims=claims,
            fix=Fix(
                "Run reduce-scatters in a process group of their own, so that all-gathers need not wait for them",
                needs=frozenset({Part.MODEL}),
                change=_FULLY_SHARD if any(name.startswith("FSDP::") for name in facts.trace.names) else None,
                not_replayed=not_validated(Purpose.SHARDS),
            ),
            effort=Effort.LINE,
            most_ns=most_ns / facts.step_count,
            evidence=(
                facts.count_per_step("all-gathers that waited for a reduce-scatter", queued.waited_ns.size),
                Evidence("time they waited", int(queued.waited_ns.sum()) / facts.step_count, Unit.NS_PER_STEP),
                facts.time_per_step("exposed communication from these reduce-scatters to these all-gathers", claims),
            ),
            caveats=(*late_ranks(facts), "If one collective uses the whole network, two at a time take as long."),
        )
