from __future__ import annotations

from traceadvisor.model.communication import Purpose
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen
from traceadvisor.rules.dist.purposes import late_ranks, not_validated

_CHANGE = (
    "torch._inductor.config._micro_pipeline_tp = True  # before torch.compile(model): asynchronous tensor parallelism"
)


@frozen
class TensorParallel(Rule):
    """Communication of layers that are split over GPUs runs while no compute kernel runs.

    What it finds: Time in which a tensor-parallel all-reduce, all-gather or reduce-scatter is alone on the GPU.
        All-reduce kernels of vLLM, SGLang, FlashInfer, TensorRT-LLM and of symmetric memory count too.
    Why it costs time: Each split layer waits for the partial results of all ranks, in forward and in backward. Nothing
        of the same batch can run meanwhile.
    How to fix it: Use asynchronous tensor parallelism, which communicates one part of a matmul during the next. Use
        sequence parallelism, which also splits what lies between the layers. Keep the tensor-parallel group within the
        GPUs that NVLink or Infinity Fabric connects, or make it smaller.
    How the saving is estimated: Upper limit: all of this time. No recording of tensor parallelism has validated a
        simulation.
    When it may be wrong: A smaller group needs more memory per GPU. For small batches, splitting a matmul costs more
        than it hides. A late rank looks the same.
    """

    meta = RuleMeta("DIST011", "tensor-parallel", "The GPU waits for tensor-parallel communication")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.COLLECTIVES})
    refines = frozenset({"DIST003"})
    claims = frozenset({Category.COMMUNICATION})

    min_share: float = 0.05
    """Share of the step. Tensor parallelism always exposes some communication."""

    def check(self, facts: Facts) -> Outcome:
        mine = facts.collectives.of((Purpose.TENSOR_PARALLEL,))
        if not len(mine):
            return Skipped("No tensor-parallel communication was recognised.")
        exposed = facts.exposed_alone(mine)
        share = facts.share(exposed)
        if share < self.min_share:
            return Clear("exposed tensor-parallel communication", share, self.min_share, Unit.SHARE)
        groups = {message.group_size for message in mine.messages if message and message.group_size}
        return finding_of(
            facts,
            claims=exposed,
            fix=Fix(
                "Use asynchronous tensor parallelism, or a smaller tensor-parallel group",
                needs=frozenset({Part.MODEL}),
                change=_CHANGE,
                not_replayed=not_validated(Purpose.TENSOR_PARALLEL),
            ),
            effort=Effort.REFACTOR,
            evidence=(
                facts.time_per_step("exposed tensor-parallel communication", exposed),
                facts.time_per_step("total tensor-parallel communication", facts.trace.events.spans(mine.rows)),
                facts.count_per_step("collectives", len(mine)),
                facts.known("ranks of the tensor-parallel group", max(groups, default=None), Unit.COUNT),
                Evidence("ranks", facts.run.rank_count, Unit.COUNT),
            ),
            caveats=(*late_ranks(facts), "Asynchronous tensor parallelism needs torch.compile and symmetric memory."),
        )
