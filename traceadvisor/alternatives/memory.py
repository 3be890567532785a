"""The memory that a training needs at another batch, and whether it fits into a GPU."""

from __future__ import annotations

from traceadvisor.analysis.memory.device_memory import DeviceMemory
from traceadvisor.analysis.memory.scaling import GrowthLaw, guessed_law
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.frozen import frozen
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.model.whatif import Fit, MemoryFit, Range

GIB = 1 << 30

VISIBLE_SHARE = 0.92
"""Share of the memory sold that a program surely gets: the driver and error correction take the rest."""

CONTEXT_BYTES = (GIB // 4, GIB // 2, GIB)
"""Memory that CUDA itself takes, least, about and at most. An assumption."""

MOST_TIMES = 16
"""Batches that are more times as large are not searched: a guess from one recording says nothing of them."""


@frozen(eq=False)
class NeededMemory:
    """How the memory of a training grows with its batch."""

    held_bytes: float
    """Bytes that the recorded training held, with all that CUDA takes."""

    spread: tuple[float, float, float] = (0.97, 1.0, 1.05)
    """How far another run is from that."""

    law: GrowthLaw | None = None
    """None if only the recorded total is known."""

    state_bytes: float = 0.0
    """Bytes that surely do not grow with the batch: parameters, their gradients and the optimizer's state."""

    def at(self, times: float) -> Range:
        """Return the bytes at so many times the recorded batch.

        At one end nothing grows but what surely does; at the other, all but the state and CUDA's own memory.
        """
        held, most = self.held_bytes, self.held_bytes - self.state_bytes
        grown = [held * one for one in self.spread]
        if self.law is None:
            ends = sorted((0.0, most * (times - 1)))
            added = (ends[0], most * (times**0.75 - 1), ends[1])
        else:
            peak, tensors = self.law.peak_bytes(1), max(self.law.peak_bytes(1) - self.state_bytes, 0.0)
            likely = float(self.law.peak_bytes(times) - peak)
            ends = sorted((likely, tensors * (times - 1)))
            added = (ends[0], likely, ends[1])
        return Range(*(max(one + more, 0.0) for one, more in zip(grown, added, strict=True)))

    def fit(self, times: float, memory_gb: int) -> Fit:
        """Return whether so many times the batch fit into a GPU."""
        needed = self.at(times)
        if needed.high <= VISIBLE_SHARE * memory_gb * GIB:
            return Fit.YES
        return Fit.NO if needed.low > memory_gb * GIB else Fit.PERHAPS

    def largest(self, batch: int, memory_gb: int) -> int:
        """Return the largest batch that surely fits; 0 if none does."""
        low, high = 0, batch
        while high < MOST_TIMES * batch and self.fit(high / batch, memory_gb) is Fit.YES:
            low, high = high, 2 * high
        if low * 2 == high and self.fit(high / batch, memory_gb) is Fit.YES:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fit(middle / batch, memory_gb) is Fit.YES else (low, middle)
        return low

    def figures(self, batch: int | None, times: float, memory_gb: int) -> MemoryFit:
        """Return the figures of a row."""
        largest = self.largest(batch, memory_gb) if batch and self.law else None
        return MemoryFit(self.at(times), memory_gb * GIB, self.fit(times, memory_gb), largest)


def needed_memory(memory: DeviceMemory | None, recorded: SnapshotFacts | None) -> NeededMemory | None:
    """Return the memory of a training; None if it was not recorded.

    Args:
        memory: peaks of the device.
        recorded: allocations, from a snapshot or the trace.
    """
    law = guessed_law(recorded) if recorded else None
    if recorded is None:
        return None if memory is None else NeededMemory(memory.own_bytes)
    at_peak = recorded.peak_rows
    kept = recorded.is_of(MemoryClass.PARAMETERS, MemoryClass.GRADIENTS, MemoryClass.OPTIMIZER_STATE)[at_peak]
    state = float(recorded.rows.size_bytes[at_peak][kept].sum())
    peak = recorded.history.peak_bytes
    reserved = max(int(recorded.history.reserved_bytes[recorded.history.peak]), peak)
    if memory is not None and memory.own_bytes >= peak:  # else memory ran out after the recorded steps
        return NeededMemory(memory.own_bytes, law=law, state_bytes=state)
    least, about, most = CONTEXT_BYTES
    held = float(reserved + about)
    return NeededMemory(held, ((peak + least) / held, 1.0, 1.05 * (reserved + most) / held), law, state)
