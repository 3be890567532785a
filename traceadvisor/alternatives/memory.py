"""The memory that a training needs at another batch, and whether it fits into a GPU."""

from __future__ import annotations

from traceadvisor.analysis.memory.device_memory import DeviceMemory
from traceadvisor.analysis.memory.scaling import GrowthLaw, guessed_law
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.frozen import frozen
from traceadvisor.model.whatif import Fit, MemoryFit, Range

GIB = 1 << 30

VISIBLE_SHARE = 0.92
"""Share of the memory sold that a program surely gets: the driver and error correction take the rest."""

CONTEXT_BYTES = (GIB // 4, GIB // 2, GIB)
"""Memory that CUDA itself takes, least, about and at most. An assumption."""

MOST_TIMES = 1024.0
"""Batches further from the recorded one are not searched."""


@frozen(eq=False)
class NeededMemory:
    """How the memory of a training grows with its batch."""

    held_bytes: float
    """What the recorded training held, with all that CUDA takes."""

    spread: tuple[float, float, float] = (0.97, 1.0, 1.05)
    """How far another run is from that."""

    law: GrowthLaw | None = None
    """None if only the recorded total is known: its growth lies between none and in proportion."""

    def at(self, times: float) -> Range:
        """Return the bytes at so many times the recorded batch."""
        if self.law is None:
            likely = times**0.75
            factors = sorted((1.0, likely, times))
        else:
            peak = max(self.law.peak_bytes(1), 1)
            factors = sorted(self.law.peak_bytes(times, doubt) / peak for doubt in (-1, 0, 1))
            away = abs(times - 1) * GUESSED_SPREAD / max(times, 1)  # which allocations grow is a guess
            beside = max(self.held_bytes - peak, 0.0) / self.held_bytes  # CUDA's own memory and gaps; they may grow
            factors = [factors[0] * (1 - away), factors[1] * (1 - beside) + beside, factors[2] * (1 + away)]
            factors[0] = factors[0] * (1 - beside) + beside if times > 1 else factors[0]
            factors[2] = factors[2] if times > 1 else factors[2] * (1 - beside) + beside
        low, likely, high = (self.held_bytes * one * two for one, two in zip(factors, self.spread, strict=True))
        return Range(low, likely, high)

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
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fit(middle / batch, memory_gb) is Fit.YES else (low, middle)
        return low

    def figures(self, batch: int | None, times: float, memory_gb: int) -> MemoryFit:
        """Return the figures of a row."""
        largest = self.largest(batch, memory_gb) if batch and self.law else None
        return MemoryFit(self.at(times), memory_gb * GIB, self.fit(times, memory_gb), largest)


GUESSED_SPREAD = 0.1
"""Error of the guess at other batches, at most: the tests of snapshots show less (docs/validation.md)."""


def needed_memory(memory: DeviceMemory | None, recorded: SnapshotFacts | None) -> NeededMemory | None:
    """Return the memory of a training; None if it was not recorded.

    Args:
        memory: peaks of the device.
        recorded: allocations, from a snapshot or the trace.
    """
    law = guessed_law(recorded) if recorded else None
    if memory is not None:
        return NeededMemory(memory.own_bytes, law=law)
    if recorded is None:
        return None
    peak = recorded.history.peak_bytes
    reserved = max(int(recorded.history.reserved_bytes[recorded.history.peak]), peak)
    least, about, most = CONTEXT_BYTES
    held = float(reserved + about)
    return NeededMemory(held, ((peak + least) / held, 1.0, 1.05 * (reserved + most) / held), law)
