from __future__ import annotations

from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Skipped, Unit
from traceadvisor.rules.base import Facts, Input, Option, Outcome, Rule, RuleMeta, finding_of, frozen

ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The current and the former name of the environment variable."""

EXPANDABLE = "expandable_segments:True"


@frozen
class Fragmentation(Rule):
    """PyTorch's allocator has reserved much more GPU memory than tensors use even at their peak.

    What it finds: A peak of reserved memory of more than twice the peak used by tensors, within the recorded steps. The
        difference is a large part of the GPU memory.
    Why it costs time: A batch that could fit causes an out-of-memory error, or the allocator replaces blocks through
        the driver, which stops the GPU.
    How to fix it: Set ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`` (in new versions also
        ``PYTORCH_ALLOC_CONF``) to let memory blocks grow. Memory fragments if shapes vary from batch to batch: bucket
        their lengths, or run the longest batch first.
    How the saving is estimated: The fix frees memory and saves no time.
    When it may be wrong: Memory reserved for an earlier peak (validation, the first steps, a search for algorithms) is
        no fragmentation: the next such peak uses it again.
    """

    meta = RuleMeta("MEM005", "fragmentation", "PyTorch reserves much more GPU memory than tensors use")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MEMORY})
    of_cuda = True

    max_ratio: float = 2.0
    """Reserved memory relative to used memory. Some reserve is normal and makes the allocator fast."""

    min_unused_share: float = 0.1
    """Share of GPU memory that is reserved but unused. With less, no larger batch would fit."""

    def check(self, facts: Facts) -> Outcome:
        memory = facts.needed(facts.memory, Input.DEVICE_MEMORY)
        reserved, used = memory.reserved_bytes, memory.allocated_bytes
        if reserved is None or not used:
            return Skipped(facts.unknown_without("Memory reserved by PyTorch was not recorded", Option.MEMORY))
        unused_share = (reserved - used) / memory.capacity_bytes
        if reserved / used < self.max_ratio:
            return Clear("reserved memory relative to used memory", reserved / used, self.max_ratio, Unit.RATIO)
        if unused_share < self.min_unused_share:
            return Clear("reserved but unused GPU memory", unused_share, self.min_unused_share, Unit.SHARE)
        environment = facts.settings.environment
        is_set = any(EXPANDABLE in environment.get(name, "") for name in ALLOCATOR_SETTINGS)
        return finding_of(
            facts,
            fix=Fix("Reduce the number of shapes: bucket lengths, or run the longest batch first")
            if is_set
            else Fix(
                "Enable expandable segments in the allocator", change=f"export PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}"
            ),
            effort=Effort.SETTING,
            evidence=(
                Evidence("reserved memory at the peak", reserved, Unit.BYTES),
                Evidence("memory used by tensors at the peak", used, Unit.BYTES),
                Evidence("reserved but unused GPU memory", unused_share, Unit.SHARE),
            ),
            caveats=("Memory reserved for an earlier peak stays reserved; this is not fragmentation.",),
        )
