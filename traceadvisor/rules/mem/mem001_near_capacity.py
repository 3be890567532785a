"""MEM001: the device's memory is nearly full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceadvisor.analysis.memory.device_memory import DeviceMemory
from traceadvisor.analysis.memory.step_memory import RECOMPUTED_SHARE, memory_relief
from traceadvisor.model.breakdown import Category
from traceadvisor.rules.base import Clear, Effort, Evidence, Facts, Fix, Input, Outcome, Rule, RuleMeta, Unit

AUTOTUNING = "cuDNN autotuning is on; what its workspaces take tells a second run without it, which may be slower."


@dataclass(frozen=True, slots=True)
class NearCapacity(Rule):
    """The run holds nearly all of the device's memory.

    What it finds: A peak of held memory above nine tenths of the device's capacity, as sampled from the driver or,
        without samples, as reserved by torch. What other processes hold does not count (HW003 tells of it), nor, where
        torch reserved twice what tensors used at their peak or more, what it reserved beyond that (MEM005).
    Why it costs time: The next longer batch ends the run; before that, the allocator frees and takes memory back from
        the driver, which stops the device.
    How to fix it: Mixed precision halves activations; gradient checkpointing trades them for computing them again;
        accumulating gradients over smaller batches keeps the batch; cuDNN autotuning off
        (``torch.backends.cudnn.benchmark``) frees its workspaces.
    How the saving is estimated: It is none: the step does not become faster, it becomes safe. What each way frees is
        taken from activations alone, where the recording tells them: half of them by checkpointing (as with 16 alike
        layers in four segments), by mixed precision (if all were float32), or by two half batches whose gradients are
        accumulated. One more forward pass is taken to be a third of the time that kernels take.
    When it may be wrong: torch keeps what it once took: where tensors' use was not recorded, held memory can be far
        above it, and then nothing is the matter. In a container the driver may not tell other processes' memory from
        the run's own.
    """

    meta = RuleMeta("MEM001", "near-capacity", "The device's memory is nearly full")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MEMORY})

    max_share: float = 0.9
    """Share of the capacity above which one odd batch does not fit any more."""

    min_reserved_ratio: float = 2.0
    """Reserved over used by tensors, from which the reserve is left out: as for MEM005. torch gives it back before it
    runs out of memory, but what is left of blocks in use it cannot, so a smaller one counts as needed."""

    def check(self, facts: Facts) -> Outcome:
        """Compare the run's own part of the peak with the capacity."""
        memory = facts.needed(facts.memory, Input.DEVICE_MEMORY)
        if memory.share <= self.max_share:
            return Clear("device memory held at the peak", memory.share, self.max_share, Unit.SHARE)
        own = memory.own_bytes / memory.capacity_bytes
        if own <= self.max_share:
            remark = "other processes hold the rest: see HW003"
            return Clear("device memory held by this run at the peak", own, self.max_share, Unit.SHARE, remark)
        needed = (memory.own_bytes - self._cache_bytes(memory)) / memory.capacity_bytes
        if needed <= self.max_share:
            remark = "torch keeps more than it uses: see MEM005"
            return Clear("device memory needed at the peak", needed, self.max_share, Unit.SHARE, remark)
        return facts.finding(
            fix=Fix("Make room: mixed precision, gradient checkpointing, or smaller batches with accumulation"),
            effort=Effort.LINE,
            evidence=(
                Evidence("device memory held at the peak", memory.held_bytes, Unit.BYTES),
                Evidence("capacity", memory.capacity_bytes, Unit.BYTES),
                facts.known("of it by other processes", memory.foreign_bytes or None, Unit.BYTES),
                facts.known("in use by tensors at the peak", memory.allocated_bytes, Unit.BYTES),
                *_parts(facts),
            ),
            caveats=(
                "torch keeps what it once took; what tensors use may be far less.",
                *((AUTOTUNING,) if facts.settings.cudnn_benchmark else ()),
            ),
        )

    def _cache_bytes(self, memory: DeviceMemory) -> int:
        """What torch could give back: reserved and unused even at the tensors' peak, where that is most of it."""
        reserved, used = memory.reserved_bytes, memory.allocated_bytes
        if reserved is None or used is None or reserved < self.min_reserved_ratio * used:
            return 0
        return reserved - used


def _parts(facts: Facts) -> Iterator[Evidence | None]:
    """What the fullest step is made of, and what would be free of it."""
    parts = facts.fullest_step
    if parts is None:
        return
    relief = memory_relief(parts, facts.settings.autocast_dtype)
    recomputed_ns = RECOMPUTED_SHARE * facts.per_step_ns(facts.claim(Category.KERNEL))
    yield Evidence("of it held between steps", parts.state_bytes, Unit.BYTES)
    yield Evidence("of it activations", parts.activations_bytes, Unit.BYTES)
    yield Evidence("freed where half of the activations is computed again", relief.checkpointing_bytes, Unit.BYTES)
    yield Evidence("for a step that is longer, at most, by one more forward pass", recomputed_ns, Unit.NS_PER_STEP)
    label = "freed by mixed precision, if all activations are float32"
    yield facts.known(label, relief.mixed_precision_bytes, Unit.BYTES)
    yield Evidence("freed by two half batches, their gradients accumulated", relief.accumulation_bytes, Unit.BYTES)
