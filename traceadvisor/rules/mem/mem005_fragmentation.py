"""MEM005: torch holds far more device memory than tensors use."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Skipped, Unit

ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The environment variable's name today, and before."""

EXPANDABLE = "expandable_segments:True"


@dataclass(frozen=True, slots=True)
class Fragmentation(Rule):
    """torch's allocator has taken far more memory from the device than tensors use even at their peak.

    What it finds: The peak of memory reserved over the peak of memory in use by tensors, within the recorded steps,
        above two, where the difference is a good part of the device's memory.
    Why it costs time: Blocks of the wrong size lie idle: a batch that would fit ends the run, or the allocator gives
        blocks back to the driver and takes others, which stops the device.
    How to fix it: ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`` (in new versions also ``PYTORCH_ALLOC_CONF``)
        lets blocks grow instead of lying beside one another. Shapes that vary from batch to batch are what fragments
        memory: bucket their lengths, or run the longest batch first.
    How the saving is estimated: It is none: the step does not become faster, memory becomes free.
    When it may be wrong: What was reserved for an earlier peak (validation, the first steps, a search for algorithms)
        stays reserved and is no fragmentation; it is there for the next such peak.
    """

    meta = RuleMeta("MEM005", "fragmentation", "torch holds far more device memory than tensors use")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MEMORY})

    max_ratio: float = 2.0
    """Reserved over used; some reserve is what makes the allocator fast."""

    min_unused_share: float = 0.1
    """Share of the device's memory that lies idle; below it nothing would fit that does not now."""

    def check(self, facts: Facts) -> Outcome:
        """Compare what is reserved with what is used."""
        memory = facts.needed(facts.memory, Input.DEVICE_MEMORY)
        reserved, used = memory.reserved_bytes, memory.allocated_bytes
        if reserved is None or not used:
            return Skipped("What torch reserved was not recorded: record with profile_memory=True.")
        unused_share = (reserved - used) / memory.capacity_bytes
        if reserved / used < self.max_ratio:
            return Clear("memory reserved over memory used", reserved / used, self.max_ratio, Unit.RATIO)
        if unused_share < self.min_unused_share:
            return Clear("device memory reserved and not used", unused_share, self.min_unused_share, Unit.SHARE)
        environment = facts.settings.environment
        is_set = any(EXPANDABLE in environment.get(name, "") for name in ALLOCATOR_SETTINGS)
        return facts.finding(
            fix=Fix("Keep shapes from varying: bucket lengths, or run the longest batch first")
            if is_set
            else Fix("Let the allocator's blocks grow", change=f"PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}"),
            effort=Effort.SETTING,
            evidence=(
                Evidence("memory reserved at the peak", reserved, Unit.BYTES),
                Evidence("in use by tensors at the peak", used, Unit.BYTES),
                Evidence("reserved and not used, of the device's memory", unused_share, Unit.SHARE),
            ),
            caveats=("What was reserved for an earlier peak stays reserved and is no fragmentation.",),
        )
