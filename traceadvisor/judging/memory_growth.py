"""What would fit: the growth of memory with the batch or length, as a report shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from traceadvisor.analysis.memory.scaling import GrowthLaw, growth_law, guessed_law, programs
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.model.memory_figures import MemoryForecast, MemoryGrowth

GIB = 1 << 30

DEVICES_GIB = (16, 24, 40, 48, 80)
"""Common sizes."""

CONTEXT_BYTES = GIB // 2
"""What CUDA itself takes of a device, about."""


def growths(facts: Mapping[int, SnapshotFacts]) -> Iterator[tuple[int, MemoryGrowth]]:
    """The growth by the number of the snapshot that is scaled: a law if several are of one program, else guesses."""
    number_of = {id(one): number for number, one in facts.items()}
    for group in programs(tuple(facts.values())):
        if law := growth_law(group):
            ordered = sorted(group, key=lambda one: one.history.peak_bytes)
            yield number_of[id(law.base)], _growth(law, tuple(one.snapshot.path.name for one in ordered))
            continue
        for one in group:
            if guess := guessed_law(one):
                yield number_of[id(one)], _growth(guess, (one.snapshot.path.name,))


def _growth(law: GrowthLaw, names: tuple[str, ...]) -> MemoryGrowth:
    memory = law.base
    at_peak = memory.peak_rows
    powers = np.bincount(law.exponent[at_peak].astype(np.int64), memory.rows.size_bytes[at_peak], minlength=3)
    twice = MemoryForecast(None, 2, 2, 2, law.peak_bytes(2, -1), law.peak_bytes(2), law.peak_bytes(2, 1))
    stays, linear, square = (int(one) for one in powers[:3])
    fitting = tuple(_fitting(law, size * GIB) for size in DEVICES_GIB)
    return MemoryGrowth(names, law.ratios, law.paired_share, law.differs, (stays, linear, square), twice, fitting)


def _fitting(law: GrowthLaw, capacity: int) -> MemoryForecast:
    """What fits beside the context of CUDA, if the allocator keeps as much beyond requests as at the recorded peak."""
    history = law.base.history
    kept = max(int(history.reserved_bytes[history.peak]) / max(history.peak_bytes, 1), 1.0)
    room = int((capacity - CONTEXT_BYTES) / kept)
    surely, expected, best = (law.largest_factor(room, doubt) for doubt in (1, 0, -1))
    low, high = min(surely, best), max(surely, best)  # below the snapshot's own size, the ends change places
    return MemoryForecast(capacity, low, expected, high, peak_bytes=room)
