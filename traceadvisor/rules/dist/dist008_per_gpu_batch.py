from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Category, Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen


@frozen
class PerGpuBatch(Rule):
    """The batch per GPU is so small that GPUs mostly wait for kernel launches and for each other.

    What it finds: A batch per GPU below a minimum, in a run on several GPUs whose GPU is idle between launches, or in
        exposed communication, for much of the step.
    Why it costs time: Launches and collectives take the same time for one sample as for many. Over more GPUs, only the
        compute time of a batch shrinks.
    How to fix it: Use a larger batch per GPU, or fewer GPUs for the same batch. If memory limits the batch, gradient
        accumulation (``no_sync()``) saves collectives.
    How the saving is estimated: Upper limit, per sample: the launch and communication time that a batch of the minimum
        size saves.
    When it may be wrong: A larger global batch changes convergence, so check the learning rate. A few long sequences
        can fill a GPU; then the rule reports nothing.
    """

    meta = RuleMeta("DIST008", "per-gpu-batch", "The batch per GPU is too small")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.SETTINGS})
    training_only = True
    refines = frozenset({"MEM002"})
    claims = frozenset({Category.COMMUNICATION, Category.IDLE_LAUNCH, Category.IDLE_HOST})

    min_batch: int = 16
    """Samples per GPU. With images, current GPUs are busy from about this batch size."""

    min_idle_share: float = 0.2
    """Share of the step in which the GPU waits for launches or other GPUs. Less is normal for any batch size."""

    def check(self, facts: Facts) -> Outcome:
        devices = len(facts.trace.device_indices)
        if facts.run.rank_count * devices < 2:
            return Skipped("Training uses only one GPU.")
        batch = facts.run.batch_size
        if not batch:
            return Skipped(facts.unknown_without("The batch size is unknown", Option.CAPTURE))
        per_device = batch / devices
        if per_device >= self.min_batch:
            return Clear("samples per GPU", per_device, self.min_batch, Unit.COUNT, at_least=True)
        idle, communication = facts.claim(Category.IDLE_LAUNCH, Category.IDLE_HOST), facts.claim(Category.COMMUNICATION)
        lost = idle | communication
        share = facts.share(lost)
        if share < self.min_idle_share:
            label, remark = "wait for kernel launches or other GPUs", "the GPU is busy despite the small batch"
            return Clear(label, share, self.min_idle_share, Unit.SHARE, remark)
        return finding_of(
            facts,
            claims=lost,
            fix=Fix(
                "Use a larger batch per GPU, or fewer GPUs",
                not_replayed="the recording does not show how long a step with a larger batch takes",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("samples per GPU", per_device, Unit.COUNT),
                Evidence("GPUs", facts.run.rank_count * devices, Unit.COUNT),
                facts.time_per_step("GPU idle time between launches", idle),
                facts.time_per_step("exposed communication", communication),
            ),
            most_ns=facts.per_step_ns(lost) * (1 - per_device / self.min_batch),
            locations=facts.loader_locations,
            caveats=(
                "Check the learning rate: a larger global batch changes convergence.",
                "The saving is per sample: a step with a larger batch takes longer.",
            ),
        )
