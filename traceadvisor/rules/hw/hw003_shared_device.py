from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.model.spans import SpanSet
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Rule, RuleMeta, finding_of, frozen


@frozen
class SharedDevice(Rule):
    """Processes outside this training use the GPU's memory or time.

    What it finds: GPU memory of other processes, as the driver reports it, from 10% of the GPU's memory; from 2% if the
        GPU is also busier than this training makes it.
    Why it costs time: While a kernel of another process runs, the kernels of this one wait and appear longer. Memory
        that others use is not available for a larger batch.
    How to fix it: Find the processes with `nvidia-smi`. End them, or use another GPU for them or for this training
        (`CUDA_VISIBLE_DEVICES`).
    How the saving is estimated: Upper limit: the kernel time times the difference between the GPU's utilisation and
        this training's share. If others only hold memory, there is no saving.
    When it may be wrong: A process of the same job counts as another process if a different launcher started it. The
        driver's utilisation is coarse.
    """

    meta = RuleMeta("HW003", "shared-device", "Other processes use the GPU")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_TELEMETRY})
    of_cuda = True
    claims = frozenset({Category.KERNEL, Category.COMMUNICATION})

    min_memory_share: float = 0.02
    """Share of GPU memory, for processes that also use GPU time. The context of an idle process takes less."""

    min_idle_memory_share: float = 0.1
    """Share of GPU memory, for processes that use no GPU time. A desktop takes less."""

    min_time_share: float = 0.1
    """Difference between the GPU's utilisation and this training's share. The driver's figure is not more precise."""

    def check(self, facts: Facts) -> Outcome:
        window = facts.needed(facts.run.device_telemetry, Input.DEVICE_TELEMETRY)
        foreign = window.peak_foreign_memory_bytes
        capacity = facts.run.sampled_device.memory_bytes if facts.run.sampled_device else None
        if foreign is None or not capacity:
            return Skipped("The owners of GPU memory are unknown: inside a container, the driver's process ids differ.")
        share = foreign / capacity
        kernels = facts.claim(Category.KERNEL, Category.COMMUNICATION)
        others = self._time_share(window.mean_utilization_share, facts.share(kernels))
        least = self.min_memory_share if others else self.min_idle_memory_share
        if share < least:
            return Clear("GPU memory of other processes", share, least, Unit.SHARE)
        return finding_of(
            facts,
            claims=kernels if others else SpanSet.empty(),
            fix=Fix(
                "End the other processes, or use another GPU",
                not_replayed="the GPU activity of other processes is not recorded",
            ),
            effort=Effort.REFACTOR,
            evidence=(
                Evidence("GPU memory of other processes", foreign, Unit.BYTES),
                Evidence("share of GPU memory", share, Unit.SHARE),
                facts.known("GPU time of other processes", others or None, Unit.SHARE),
            ),
            most_ns=facts.per_step_ns(kernels) * others,
            caveats=(
                "Processes of the same job count as others if a different launcher started them.",
                *(() if others else ("They hold memory, but were not seen to use GPU time.",)),
            ),
        )

    def _time_share(self, utilization: float | None, own: float) -> float:
        """Return how much busier the GPU is than this training makes it; 0 if it is not, or if that is unknown."""
        beyond = 0.0 if utilization is None else utilization - own
        return beyond if beyond >= self.min_time_share else 0.0
