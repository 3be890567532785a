from __future__ import annotations

import re

from traceadvisor.model.communication import CollectiveKind, Purpose
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import late_ranks, not_validated

_WRAPPER = """\
model = torch.distributed.fsdp.FullyShardedDataParallel(
    model,
    forward_prefetch=True,
    backward_prefetch=torch.distributed.fsdp.BackwardPrefetch.BACKWARD_PRE,
    sharding_strategy=torch.distributed.fsdp.ShardingStrategy.SHARD_GRAD_OP,  # where memory allows
)"""

_FULLY_SHARD = """\
for block in model.children():
    torch.distributed.fsdp.fully_shard(block, reshard_after_forward=False)  # where memory allows
torch.distributed.fsdp.fully_shard(model)"""

_ZERO = """\
config["zero_optimization"] |= {"overlap_comm": True, "contiguous_gradients": True}  # the configuration of DeepSpeed"""

_FUNCTIONAL = re.compile(r"^_c10d_functional::(?:all_gather|reduce_scatter)")
"""Collectives of compiled code and of DTensor: SimpleFSDP shards parameters as DTensors."""

_MESH = re.compile(r"^mesh_(?:\w{1,20}_)?(?:fsdp|shard|dp)")
"""Description of the group that a device mesh makes for its dimension: ``fully_shard`` takes a mesh."""

_DEEPSPEED = re.compile(r"[Dd]eep[Ss]peed|^PreBackwardFunction|^PostBackwardFunction|ZeRO|Zero(?:Param|Grad|Optimizer)")
"""Names that DeepSpeed gives to ranges, operators, optimizers and autograd functions."""


@frozen
class ShardedModules(Rule):
    """All-gather and reduce-scatter of sharded modules run while no compute kernel runs.

    What it finds: Time in which FSDP, ``fully_shard`` or ZeRO gathers parameters or scatters gradients, and nothing
        else runs on the GPU. An all-gather that only waits for a reduce-scatter belongs to DIST017.
    Why it costs time: Each sharded module gathers its parameters before it computes, in forward and again in backward.
        The GPU waits for the next module's all-gather if it does not run beside this module's compute.
    How to fix it: Prefetch: ``forward_prefetch=True`` and ``BackwardPrefetch.BACKWARD_PRE``, or
        ``set_modules_to_forward_prefetch`` with ``fully_shard``. Where memory allows, keep parameters gathered between
        forward and backward: ``reshard_after_forward=False`` or ``SHARD_GRAD_OP``. Use ``limit_all_gathers=False`` only
        if the CPU is late. Shard whole blocks, neither the whole model as one nor each small layer.
    How the saving is estimated: Upper limit: all of this time. No recording of sharded modules has validated a
        simulation.
    When it may be wrong: If communication takes longer than the compute, only part of it can overlap: then send fewer
        bytes, or use a larger batch per GPU. A late rank looks the same.
    """

    meta = RuleMeta("DIST009", "sharded-modules", "The GPU waits for communication of sharded modules")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES})
    refines = frozenset({"DIST003"})
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.05
    """Share of the step. The first all-gather and the last reduce-scatter of a step are always exposed."""

    def check(self, facts: Facts) -> Outcome:
        mine = facts.collectives.of((Purpose.SHARDS,))
        if not len(mine):
            return Skipped("No communication of sharded modules (FSDP, ZeRO) was recorded.")
        exposed = facts.without_queues(facts.exposed_alone(mine))
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed communication of sharded modules", share, self.min_share, Unit.SHARE)
        gathers = exposed & facts.exposed_alone(mine.of((Purpose.SHARDS,), (CollectiveKind.ALL_GATHER,)))
        scatters = exposed & facts.exposed_alone(mine.of((Purpose.SHARDS,), (CollectiveKind.REDUCE_SCATTER,)))
        return finding_of(
            facts,
            claims=exposed,
            fix=Fix(
                "Gather the next module's parameters during compute, and gather them once per step",
                needs=frozenset({Part.MODEL}),
                change=_change(facts),
                not_replayed=not_validated(Purpose.SHARDS),
            ),
            effort=Effort.SETTING,
            evidence=(
                facts.time_per_step("exposed all-gather of parameters", gathers),
                facts.time_per_step("exposed reduce-scatter of gradients", scatters),
                facts.time_per_step("total", facts.trace.events.spans(mine.rows)),
                facts.count_per_step("collectives", len(mine)),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=(*late_ranks(facts), "Parameters that stay gathered take memory: check the peak."),
        )


def _change(facts: Facts) -> str | None:
    """The change for the library that the recording shows; None if it shows none."""
    names = facts.trace.names
    if any(name.startswith("FSDP::") for name in names):
        return _FULLY_SHARD
    if any(name.startswith("FullyShardedDataParallel") for name in names):
        return _WRAPPER
    if any(_FUNCTIONAL.search(name) for name in names):
        return None
    groups = {message.group for message in facts.collectives.of((Purpose.SHARDS,)).messages if message}
    if any(_MESH.search(group) for group in groups):
        return _FULLY_SHARD
    return _ZERO if any(_DEEPSPEED.search(name) for name in names) else None
