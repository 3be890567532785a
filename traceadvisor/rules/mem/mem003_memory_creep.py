"""MEM003: device memory rises from step to step."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.rules.base import (
    Clear,
    Confidence,
    Effort,
    Evidence,
    Facts,
    Fix,
    Input,
    Outcome,
    Rule,
    RuleMeta,
    Skipped,
    Unit,
)
from traceadvisor.rules.mem.memory_growth import growth_by_step, growth_over_run

FIX = Fix("Find what is kept from step to step: a loss or output with its graph", change="loss.detach()")
CAVEAT = "A run that has just begun still fills what it will keep."


@dataclass(frozen=True, slots=True)
class MemoryCreep(Rule):
    """Each step leaves more device memory behind than the one before.

    What it finds: What tensors hold at the ends of successive steps, by the allocator's own events: rising in nearly
        every step, by more than a list of numbers would. Without such events, the memory held over the run as sampled:
        rising from each quarter of the run to the next, by some hundredths of the device's memory in all.
    Why it costs time: The run ends when the device is full. Before that the allocator returns memory to the driver and
        takes it again, which stops the device.
    How to fix it: Look for what is kept from step to step with its graph: ``total += loss`` or ``losses.append(loss)``
        (take ``loss.detach()``), hidden states carried over without ``detach()``, outputs collected for a metric,
        ``backward(retain_graph=True)``, a cache without a limit.
    How the saving is estimated: It is none: the step does not become faster, the run becomes safe.
    When it may be wrong: A run that has just begun still fills what it will keep. Inputs that grow by plan (longer
        sequences) hold more while they are at hand.
    """

    meta = RuleMeta("MEM003", "memory-creep", "Device memory rises from step to step")
    needs = frozenset({Input.STEPS, Input.DEVICE})

    min_bytes_per_step: float = 65536.0
    """A loss that is kept takes 512 bytes a step and fills no device; from here on 80 GB are full after a million
    steps."""

    min_rising_share: float = 0.9
    """Share of successive steps that must hold more than the one before; memory that varies with the batch falls as
    often as it rises."""

    least_steps: int = 5
    """Below this a rise in every step is no rare chance."""

    min_capacity_share: float = 0.05
    """Share of the device's memory by which a sampled run must rise from its first to its last quarter."""

    def check(self, facts: Facts) -> Outcome:
        """Look at the ends of steps, else at the run."""
        device = facts.needed(facts.device, Input.DEVICE)
        growth = growth_by_step(facts.trace, device.index, facts.steps.kept)
        if growth is None or growth.steps < self.least_steps:
            return self._over_run(facts)
        rising, rise_bytes = growth.rising_share, growth.bytes_per_step
        if rising < self.min_rising_share:
            return Clear("steps that hold more than the one before", rising, self.min_rising_share, Unit.SHARE)
        if rise_bytes < self.min_bytes_per_step:
            return Clear("rise from step to step", rise_bytes, self.min_bytes_per_step, Unit.BYTES_PER_STEP)
        capacity = device.memory_bytes
        left = None if capacity is None else max(capacity - growth.last_bytes, 0) / rise_bytes
        return facts.finding(
            fix=FIX,
            effort=Effort.LINE,
            evidence=(
                Evidence("rise from step to step", rise_bytes, Unit.BYTES_PER_STEP),
                Evidence("steps that hold more than the one before", rising, Unit.SHARE),
                Evidence("held at the end of the first recorded step", growth.first_bytes, Unit.BYTES),
                Evidence("held at the end of the last", growth.last_bytes, Unit.BYTES),
                facts.known("steps until the device is full", left, Unit.COUNT),
            ),
            caveats=(CAVEAT,),
        )

    def _over_run(self, facts: Facts) -> Outcome:
        device = facts.run.sampled_device
        if device is None or not device.memory_bytes:
            return Skipped("Device memory was not recorded over enough steps: record with profile_memory=True.")
        quarters = growth_over_run(device.series, facts.run.undisturbed)
        share = 0.0 if quarters is None else (quarters[1] - quarters[0]) / device.memory_bytes
        if quarters is None or share < self.min_capacity_share:
            return Clear("steady rise over the run", share, self.min_capacity_share, Unit.SHARE)
        return facts.finding(
            fix=FIX,
            effort=Effort.LINE,
            evidence=(
                Evidence("held in the first quarter of the run", quarters[0], Unit.BYTES),
                Evidence("held in the last quarter", quarters[1], Unit.BYTES),
                Evidence("rise, of the device's memory", share, Unit.SHARE),
            ),
            confidence=Confidence.LOW,
            caveats=(CAVEAT,),
        )
