"""DIST008: each device's part of the batch is too small to keep it busy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traceadvisor.facts import Facts
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Effort, Evidence, Finding, Fix, Input, RuleMeta, Skipped, Unit
from traceadvisor.rules.base import Rule

_WHY_A_BOUND = "what steps of a larger batch would take is not recorded"


@dataclass(frozen=True, slots=True)
class PerGpuBatch(Rule):
    """Several devices share a batch so small that each of them mostly waits for launches and for the others.

    What it finds
        A batch per device below a floor, in a run on several devices whose device is idle between launches, or in
        communication that nothing hides, for a good part of the step.

    Why it costs time
        Launches and collectives cost the same for one sample as for many. Split over more devices, the computing gets
        shorter and they do not.

    How to fix it
        A larger batch per device, or fewer devices for the same batch. Accumulating gradients (``no_sync()``) saves
        collectives where memory has no room for more.

    How the saving is estimated
        As a bound, per sample: between nothing and what launches and communication would take less when spread over a
        batch of the floor's size.

    When it may be wrong
        A larger global batch changes convergence and wants the learning rate looked at again. Samples of long sequences
        fill a device few at a time; then it is not idle, and this rule is silent.
    """

    meta: ClassVar = RuleMeta(
        id="DIST008",
        name="per-gpu-batch",
        title="Each device's part of the batch is too small",
        needs=frozenset({Input.STEPS, Input.DEVICE, Input.SETTINGS}),
        refines=frozenset({"IDLE002", "MEM002"}),
    )

    min_batch: int = 16
    """Samples for each device: about where current devices are busy with images."""

    min_idle_share: float = 0.2
    """Share of the step in which the device waits for launches or for the others; less is usual for any batch."""

    def check(self, facts: Facts) -> Finding | Clear | Skipped:
        """Compare the batch per device with the floor, then look whether the device idles."""
        devices = len(facts.device_indices)
        if facts.rank_count * devices < 2:
            return Skipped("Only one device trains.")
        loader = facts.settings.loader
        batch = loader.batch_size if loader else None
        if not batch:
            return Skipped("The batch size is not known.")
        per_device = batch / devices
        if per_device >= self.min_batch:
            return Clear("samples for each device", per_device, self.min_batch, Unit.COUNT)
        idle = facts.claim(Category.IDLE_LAUNCH) | facts.claim(Category.IDLE_HOST)
        lost = idle | facts.claim(Category.COMMUNICATION)
        if facts.share(lost) < self.min_idle_share:
            remark = "the device is busy as it is"
            return Clear(
                "waiting for launches or other devices", facts.share(lost), self.min_idle_share, Unit.SHARE, remark
            )
        communication = facts.per_step_ns(facts.claim(Category.COMMUNICATION))
        return Finding(
            rule=self.meta,
            claims=lost,
            saving=facts.bound(facts.per_step_ns(lost) * (1 - per_device / self.min_batch), _WHY_A_BOUND),
            confidence=facts.confidence(),
            effort=Effort.SETTING,
            evidence=(
                Evidence("samples for each device", per_device, Unit.COUNT),
                Evidence("devices", facts.rank_count * devices, Unit.COUNT),
                Evidence("device idle between launches", facts.per_step_ns(idle), Unit.NS_PER_STEP),
                Evidence("communication that nothing hides", communication, Unit.NS_PER_STEP),
            ),
            fix=Fix("Give each device more samples, or use fewer devices"),
            locations=(location,) if (location := facts.loader_location) else (),
            caveats=(
                "A larger global batch changes convergence: look at the learning rate again.",
                "The time saved is per sample: a step with a larger batch takes longer.",
            ),
        )
