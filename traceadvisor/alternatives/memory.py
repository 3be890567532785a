"""The memory that a training needs at another batch, and whether it fits into a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

import numpy as np

from traceadvisor.analysis.memory.changes import MemoryChange
from traceadvisor.analysis.memory.device_memory import DeviceMemory, freed_by_half_the_activations, state_in_8_bits
from traceadvisor.analysis.memory.scaling import GrowthLaw, guessed_law
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.frozen import frozen
from traceadvisor.model.memory_figures import MemoryClass
from traceadvisor.model.whatif import Fit, MemoryFit, Range, Relief, Remedy

GIB = 1 << 30

VISIBLE_SHARE = 0.92
"""Share of the memory sold that a program surely gets: the driver and error correction take the rest."""

CONTEXT_BYTES = (GIB // 4, GIB // 2, GIB)
"""Memory that CUDA itself takes, least, about and at most. An assumption."""

MOST_TIMES = 16
"""Batches that are more times as large are not searched: a guess from one recording says nothing of them."""


WIDE_STATE = 1.5
"""State relative to the parameters, from which it is that of Adam in their type; less may be in 8 bits."""


@frozen
class Freed:
    """Bytes that a remedy frees of the recorded batch."""

    least: float
    """Below 0 for what it takes in addition, with any batch."""

    likely: float
    most: float
    grows: bool = False
    """Whether that grows with the batch."""

    def at(self, times: float) -> tuple[float, float, float]:
        """Return the least, likely and most bytes at so many times the batch."""
        if not self.grows:
            return self.least, self.likely, self.most
        return min(self.least, self.least * min(times, 1.0)), self.likely * times, self.most * max(times, 1.0)


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

    freed: Mapping[Remedy, Freed] = field(default_factory=dict)
    """Empty if only the recorded total is known."""

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
        return _fit(self.at(times), memory_gb)

    def _reliefs(self, times: float, memory_gb: int) -> Iterator[Relief]:
        """Yield what may make so many times the batch fit, if it does not surely fit as it is."""
        needed = self.at(times)
        for remedy, freed in self.freed.items():
            low, likely, high = freed.at(times)
            left = Range(max(needed.low - high, 0.0), max(needed.expected - likely, 0.0), needed.high - low)
            fit = _fit(left, memory_gb)
            if high > 0 and fit is not Fit.NO and self.fit(times, memory_gb) is not Fit.YES:
                yield Relief(remedy, left, fit)

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
        reliefs = tuple(self._reliefs(times, memory_gb))
        return MemoryFit(self.at(times), memory_gb * GIB, self.fit(times, memory_gb), largest, reliefs)


def _fit(needed: Range, memory_gb: int) -> Fit:
    if needed.high <= VISIBLE_SHARE * memory_gb * GIB:
        return Fit.YES
    return Fit.NO if needed.low > memory_gb * GIB else Fit.PERHAPS


def _freed(recorded: SnapshotFacts) -> dict[Remedy, Freed]:
    """Return what remedies free of the recorded peak. Sizes do not tell types: what is narrow already gains nothing."""
    saved, half = np.flatnonzero(recorded.is_saved), freed_by_half_the_activations(recorded)
    weights = recorded.bytes_of(recorded.is_of(MemoryClass.PARAMETERS))
    state = recorded.bytes_of(recorded.at_peak(recorded.is_of(MemoryClass.OPTIMIZER_STATE)))
    wide, narrow = (recorded.saved(state_in_8_bits(recorded, one)) for one in (4, 2))
    found = {
        Remedy.CHECKPOINTING: Freed(0, half, recorded.saved(MemoryChange(saved)), grows=True),
        Remedy.OPTIMIZER_STATE: Freed(narrow if state >= WIDE_STATE * weights else 0, wide, wide),
    }
    if not recorded.is_autocast.any():  # which keeps copies of the weights
        found[Remedy.MIXED_PRECISION] = Freed(-weights // 2, half // 2, half, grows=True)
    return found


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
    peak, freed = recorded.history.peak_bytes, _freed(recorded)
    reserved = max(int(recorded.history.reserved_bytes[recorded.history.peak]), peak)
    if memory is not None and memory.own_bytes >= peak:  # else memory ran out after the recorded steps
        return NeededMemory(memory.own_bytes, law=law, state_bytes=state, freed=freed)
    least, about, most = CONTEXT_BYTES
    held = float(reserved + about)
    return NeededMemory(held, ((peak + least) / held, 1.0, 1.05 * (reserved + most) / held), law, state, freed)
