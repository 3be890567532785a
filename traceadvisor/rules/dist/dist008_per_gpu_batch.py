"""DIST008: each device's part of the batch is too small to keep it busy."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit


@dataclass(frozen=True, slots=True)
class PerGpuBatch(Rule):
    """Several devices share a batch so small that each of them mostly waits for launches and for the others.

    What it finds: A batch per device below a floor, in a run on several devices whose device is idle between launches,
        or in communication that nothing hides, for a good part of the step.
    Why it costs time: Launches and collectives cost the same for one sample as for many. Split over more devices, the
        computing gets shorter and they do not.
    How to fix it: A larger batch per device, or fewer devices for the same batch. Accumulating gradients
        (``no_sync()``) saves collectives where memory has no room for more.
    How the saving is estimated: As a bound, per sample: between nothing and what launches and communication would take
        less when spread over a batch of the floor's size.
    When it may be wrong: A larger global batch changes convergence and wants the learning rate looked at again. Samples
        of long sequences fill a device few at a time; then it is not idle, and this rule is silent.
    """

    meta = RuleMeta("DIST008", "per-gpu-batch", "Each device's part of the batch is too small")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.SETTINGS})
    refines = frozenset({"IDLE002", "MEM002"})

    min_batch: int = 16
    """Samples for each device: about where current devices are busy with images."""

    min_idle_share: float = 0.2
    """Share of the step in which the device waits for launches or for the others; less is usual for any batch."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the batch per device with the floor, then look whether the device idles."""
        devices = len(facts.trace.device_indices)
        if facts.run.rank_count * devices < 2:
            return Skipped("Only one device trains.")
        batch = facts.run.batch_size
        if not batch:
            return Skipped("The batch size is not known.")
        per_device = batch / devices
        if per_device >= self.min_batch:
            return Clear("samples for each device", per_device, self.min_batch, Unit.COUNT)
        idle, communication = facts.claim(Category.IDLE_LAUNCH, Category.IDLE_HOST), facts.claim(Category.COMMUNICATION)
        lost = idle | communication
        share = facts.share(lost)
        if share < self.min_idle_share:
            label, remark = "waiting for launches or other devices", "the device is busy as it is"
            return Clear(label, share, self.min_idle_share, Unit.SHARE, remark)
        return facts.finding(
            claims=lost,
            fix=Fix(
                "Give each device more samples, or use fewer devices",
                not_replayed="what steps of a larger batch would take is not recorded",
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("samples for each device", per_device, Unit.COUNT),
                Evidence("devices", facts.run.rank_count * devices, Unit.COUNT),
                facts.time_per_step("device idle between launches", idle),
                facts.time_per_step("communication that nothing hides", communication),
            ),
            most_ns=facts.per_step_ns(lost) * (1 - per_device / self.min_batch),
            locations=facts.loader_locations,
            caveats=(
                "A larger global batch changes convergence: look at the learning rate again.",
                "The time saved is per sample: a step with a larger batch takes longer.",
            ),
        )
