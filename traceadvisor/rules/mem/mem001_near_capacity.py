from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.analysis.memory.device_memory import (
    RECOMPUTED_SHARE,
    DeviceMemory,
    freed_by_half_the_activations,
    freed_by_half_the_batch,
)
from traceadvisor.model.findings import Clear, Effort, Evidence, Fix, Unit
from traceadvisor.rules.base import Category, Facts, Input, Outcome, Part, Rule, RuleMeta, finding_of, frozen

AUTOTUNING = "cuDNN autotuning is on: a second run without it shows the size of its workspaces, but may be slower."


@frozen
class NearCapacity(Rule):
    """The run holds nearly all of the GPU memory.

    What it finds: A peak of held memory above nine tenths of the GPU memory: sampled from the driver, otherwise
        reserved by PyTorch. Memory of other processes does not count (HW003), nor the excess where PyTorch reserved at
        least twice the peak used by tensors (MEM005).
    Why it costs time: A slightly larger batch causes an out-of-memory error. Even before that, the allocator returns
        memory to the driver and allocates it again, which stops the GPU.
    How to fix it: Use mixed precision, which halves the activations, or gradient checkpointing, which recomputes them
        instead of keeping them. Gradient accumulation over smaller batches keeps the batch size of each optimizer step.
        Without cuDNN autotuning (``torch.backends.cudnn.benchmark``), its workspaces are free.
    How the saving is estimated: The fix prevents out-of-memory errors and saves no time. Recorded allocations are
        replayed with half of the saved activations for checkpointing (as with 16 equal layers in four segments) and for
        mixed precision (if all were float32), and with half of all that grows with the batch for gradient accumulation.
        One more forward pass is assumed to take a third of the kernel time.
    When it may be wrong: PyTorch keeps memory that it once reserved: if the memory used by tensors was not recorded,
        held memory can be far above it. In a container, the driver may not distinguish other processes' memory.
    """

    meta = RuleMeta("MEM001", "near-capacity", "GPU memory is nearly full")
    needs = frozenset({Input.STEPS, Input.DEVICE, Input.DEVICE_MEMORY})
    training_only = True

    max_share: float = 0.9
    """Share of GPU memory. Above it, an unusually large batch does not fit."""

    min_reserved_ratio: float = 2.0
    """Reserved memory relative to memory used by tensors, from which the excess does not count. PyTorch frees its cache
    before it runs out of memory, but not unused parts of blocks in use, so a smaller excess counts."""

    def check(self, facts: Facts) -> Outcome:
        memory = facts.needed(facts.memory, Input.DEVICE_MEMORY)
        if memory.share <= self.max_share:
            return Clear("GPU memory held at the peak", memory.share, self.max_share, Unit.SHARE)
        own = memory.own_bytes / memory.capacity_bytes
        if own <= self.max_share:
            remark = "other processes hold the rest: see HW003"
            return Clear("GPU memory held by this run at the peak", own, self.max_share, Unit.SHARE, remark)
        needed = (memory.own_bytes - self._cache_bytes(memory)) / memory.capacity_bytes
        if needed <= self.max_share:
            remark = "PyTorch reserves more than it uses: see MEM005"
            return Clear("GPU memory needed at the peak", needed, self.max_share, Unit.SHARE, remark)
        return finding_of(
            facts,
            fix=Fix(
                "Free memory: use mixed precision, gradient checkpointing, or gradient accumulation",
                needs=frozenset({Part.BACKWARD}),
                otherwise=Fix("Free memory: use mixed precision, or smaller batches"),
            ),
            effort=Effort.LINE,
            evidence=(
                Evidence("GPU memory held at the peak", memory.held_bytes, Unit.BYTES),
                Evidence("GPU memory capacity", memory.capacity_bytes, Unit.BYTES),
                facts.known("memory held by other processes", memory.foreign_bytes or None, Unit.BYTES),
                facts.known("GPU memory used by tensors at the peak", memory.allocated_bytes, Unit.BYTES),
                *_parts(facts),
            ),
            caveats=(
                "PyTorch keeps memory that it once reserved; tensors may use much less.",
                *((AUTOTUNING,) if facts.is_cuda and facts.settings.cudnn_benchmark else ()),
            ),
        )

    def _cache_bytes(self, memory: DeviceMemory) -> int:
        """Return the bytes that PyTorch could free: unused even at the tensors' peak; 0 below the minimum ratio."""
        reserved, used = memory.reserved_bytes, memory.allocated_bytes
        if reserved is None or used is None or reserved < self.min_reserved_ratio * used:
            return 0
        return reserved - used


def _parts(facts: Facts) -> Iterator[Evidence | None]:
    """Yield the parts of the peak, and the memory that each fix frees."""
    memory, parts = facts.allocations, facts.peak_parts
    if memory is None or parts is None:
        return
    freed = freed_by_half_the_activations(memory)
    recomputed_ns = RECOMPUTED_SHARE * facts.per_step_ns(facts.claim(Category.KERNEL))
    yield Evidence("memory held between steps", parts.state_bytes, Unit.BYTES)
    yield Evidence("activation memory", parts.activations_bytes, Unit.BYTES)
    yield Evidence("memory freed by checkpointing", freed, Unit.BYTES)
    yield Evidence("extra step time for checkpointing, at most", recomputed_ns, Unit.NS_PER_STEP)
    if not facts.settings.autocast_dtype:
        yield Evidence("memory freed by mixed precision, if all activations are float32", freed, Unit.BYTES)
    accumulated = freed_by_half_the_batch(memory)
    yield Evidence("memory freed by two half batches with gradient accumulation", accumulated, Unit.BYTES)
