"""How memory grows with the batch or the length, from several snapshots of one program: what fits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np

from traceadvisor.analysis.memory.allocations import held_bytes
from traceadvisor.analysis.memory.call_stacks import Phase
from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.model.memory_figures import MemoryClass

MOST_TIMES = 1024
"""Predictions that far from the snapshots say nothing."""

STEPS = 12
"""Steps of the search for the largest factor: to a thousandth."""

HIGHEST = 2
"""Scores of attention grow with the square of the length."""

LEAST_PAIRED_SHARE = 0.5
"""Share of the bytes that has to have a partner: otherwise the snapshots are of different programs."""

SMALLEST_BYTES = 4096
"""Smaller allocations, such as sums, say little about growth."""

Key = Hashable


@frozen(eq=False)
class GrowthLaw:
    """How the allocations of one snapshot grow with a factor of its batch or length."""

    base: SnapshotFacts
    exponent: Float64
    """Exponent of each allocation: 0 stays, 1 grows in proportion, 2 with the square."""

    guessed: Mask
    """Whether the exponent of each allocation is that of others of its size or line."""

    ratios: tuple[float, ...]
    """Between neighbours of the snapshots, in the order of their growing peaks."""

    paired_share: float
    """Share of the bytes with a partner in another snapshot, 0..1."""

    differs: bool
    """Whether the base runs under autocast and others do not, or the other way round."""

    def held_bytes(self, factor: float, doubt: int = 0) -> Int64:
        """Return the predicted bytes at each instant at so many times the batch or length of the base.

        ``doubt``: added to the exponents that are guesses, -1 or 1 for the ends of the interval.
        """
        rows, instants = self.base.rows, self.base.history.instants
        power = np.where(self.guessed, np.clip(self.exponent + doubt, 0, HIGHEST), self.exponent)
        sizes = (rows.size_bytes * factor**power).astype(np.int64)
        return held_bytes(rows.start, rows.end, sizes, instants)

    def peak_bytes(self, factor: float, doubt: int = 0) -> int:
        """Return the predicted peak."""
        return int(self.held_bytes(factor, doubt).max())

    def largest_factor(self, room_bytes: int, doubt: int = 0) -> float:
        """Return the largest factor whose predicted peak fits into some bytes; 0 if nothing does."""
        low, high = 0.0, 1.0
        while self.peak_bytes(high, doubt) <= room_bytes and high < MOST_TIMES:
            low, high = high, 2 * high
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.peak_bytes(middle, doubt) <= room_bytes else (low, middle)
        return low


def growth_law(snapshots: Sequence[SnapshotFacts]) -> GrowthLaw | None:
    """Return the law from two or more snapshots of one program; None without two of one type.

    The one with the highest peak is the base: its allocations are scaled.
    """
    ordered = sorted(snapshots, key=lambda one: one.history.peak_bytes)
    if len(ordered) < 2:  # two make a law
        return None
    pairs = [_Pair(first, second) for first, second in pairwise(ordered)]
    ratios = tuple(pair.ratio for pair in pairs)
    if any(ratio <= 1 for ratio in ratios):
        return None
    base = ordered[-1]
    uses_autocast = [bool(one.is_autocast.any()) for one in ordered]
    alike = next((pair for pair in pairs if pair.first.is_autocast.any() == pair.second.is_autocast.any()), None)
    if alike is None:  # a wider type looks like a larger batch
        return None
    exponent, guessed, paired = _exponents(base, alike, pairs[-1])
    if paired < LEAST_PAIRED_SHARE:
        return None
    return GrowthLaw(base, exponent, guessed, ratios, paired, len(set(uses_autocast)) > 1)


def programs(snapshots: Sequence[SnapshotFacts]) -> list[list[SnapshotFacts]]:
    """Group snapshots by program: the same code makes most bytes of the forward pass, and all train or none."""
    groups: list[tuple[Counter[Key], list[SnapshotFacts]]] = []
    for one in snapshots:
        made: Counter[Key] = Counter()
        forward = one.in_phase(Phase.OTHER)
        for row, key in enumerate(_keys(one)):
            if forward[row]:
                made[key] += int(one.rows.size_bytes[row])
        trains = one.in_phase(Phase.BACKWARD).any()
        mine = next(
            (
                group
                for known, group in groups
                if group[0].in_phase(Phase.BACKWARD).any() == trains and _are_alike(known, made)
            ),
            None,
        )
        if mine is None:
            groups.append((made, [one]))
        else:
            mine.append(one)
    return [group for _, group in groups]


def _are_alike(first: Counter[Key], second: Counter[Key]) -> bool:
    common = first.keys() & second.keys()
    return all(
        sum(made[key] for key in common) >= LEAST_PAIRED_SHARE * max(made.total(), 1) for made in (first, second)
    )


def guessed_law(memory: SnapshotFacts) -> GrowthLaw | None:
    """Return a guess from one snapshot: how it grows with the batch; None where nothing grows."""
    rows = grows_with_batch(memory)
    if not rows.size:
        return None
    exponent = np.zeros(len(memory.rows))
    exponent[rows] = 1
    return GrowthLaw(memory, exponent, np.zeros(len(memory.rows), dtype=np.bool_), (), 0.0, differs=False)


class _Pair:
    """Two snapshots: the larger one's allocations by code, with the exponents of their sizes."""

    def __init__(self, first: SnapshotFacts, second: SnapshotFacts) -> None:
        self.first, self.second = first, second
        small, large = _by_key(first), _by_key(second)
        self.sizes = {
            key: list(zip(small[key], large[key], strict=True))
            for key in small.keys() & large.keys()
            if len(small[key]) == len(large[key])
        }
        ratios = Counter(
            round(float(np.log2(after / before)), 2)
            for pairs in self.sizes.values()
            for before, after in pairs
            if after > before
        )
        self.ratio = 2.0 ** next(iter(ratios.most_common(1)), (0.0, 0))[0]  # most grow in proportion

    def exponents(self) -> dict[Key, dict[int, int]]:
        """For each code: the exponent of each size in the second snapshot."""
        found: dict[Key, dict[int, int]] = {}
        for key, pairs in self.sizes.items():
            for before, after in pairs:
                power = np.log(max(after, 1) / max(before, 1)) / np.log(self.ratio)
                found.setdefault(key, {})[after] = int(np.clip(round(float(power)), 0, HIGHEST))
        return found


def _keys(memory: SnapshotFacts) -> list[Key]:
    """The code of each allocation made in the recording: its line and the function or node below it."""
    keys: list[Key] = []
    for row in range(len(memory.rows)):
        place = memory.stacks.places[memory.rows.stack[row]] if memory.rows.start[row] else None
        keys.append(None if place is None else (place.line, place.owner, place.operator))
    return keys


def _by_key(memory: SnapshotFacts) -> dict[Key, list[int]]:
    found: defaultdict[Key, list[int]] = defaultdict(list)
    for key, size in zip(_keys(memory), memory.rows.size_bytes.tolist(), strict=True):
        if key is not None and size >= SMALLEST_BYTES:
            found[key].append(size)
    return found


def _exponents(base: SnapshotFacts, pair: _Pair, last: _Pair) -> tuple[Float64, Mask, float]:
    """The exponent of each allocation of the base, which are guesses, and the share of its bytes with a partner."""
    known = pair.exponents()
    step = 1.0 if pair.second is base else last.ratio
    by_line: defaultdict[Key, Counter[int]] = defaultdict(Counter)
    by_size: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for key, sizes in known.items():
        for size, power in sizes.items():
            by_line[key[0] if isinstance(key, tuple) else None][power] += size
            if power:
                by_size[round(size * step**power)][power] += 1
    exponent, guessed = np.zeros(len(base.rows)), np.zeros(len(base.rows), dtype=np.bool_)
    kept = base.is_of(MemoryClass.PARAMETERS, MemoryClass.GRADIENTS, MemoryClass.OPTIMIZER_STATE)
    optimizer = base.in_phase(Phase.OPTIMIZER)
    copies = _weight_copies(base)
    paired = grown = 0
    for row, key in enumerate(_keys(base)):
        size = int(base.rows.size_bytes[row])
        if key is None or kept[row] or optimizer[row] or copies[row]:
            continue
        grown += size
        found = _of_size(known.get(key), size, step)
        if found is not None:
            paired, power = paired + size, found
        else:
            line = by_line.get(key[0] if isinstance(key, tuple) else None)  # of another type: half as wide
            guessed[row] = True
            power = next((one.most_common(1)[0][0] for one in (by_size.get(2 * size), line) if one), 1)
        exponent[row] = power
    return exponent, guessed, paired / max(grown, 1)


def _of_size(sizes: dict[int, int] | None, size: int, step: float) -> int | None:
    """The exponent of a size of the base, which may be in another type than the pair; None where none fits."""
    for width in (1.0, 0.5, 2.0):
        for known, power in (sizes or {}).items():
            if abs(known * step**power * width - size) <= 0.01 * size:
                return power
    return next(iter(Counter((sizes or {}).values()).most_common(1)), (None, 0))[0]


def _weight_copies(base: SnapshotFacts) -> Int64:
    """Autocast's copies of weights: as many of half a weight's size as there are such weights, in each pass."""
    left_of: dict[int, Counter[int]] = {}
    weights = Counter((base.rows.size_bytes[base.is_of(MemoryClass.PARAMETERS)] // 2).tolist())
    casts = base.with_frame(lambda frame: "cached_cast" in frame.function)
    found = np.zeros(len(base.rows), np.int64)
    for row in np.flatnonzero(casts).tolist():
        left = left_of.setdefault(int(base.pass_of[row]), Counter(weights))
        size = int(base.rows.size_bytes[row])
        if left[size] > 0:
            left[size] -= 1
            found[row] = 1
    return found


def grows_with_batch(memory: SnapshotFacts) -> Int64:
    """Allocations whose size is proportional to the batch."""
    weights = np.unique(memory.rows.size_bytes[memory.is_of(MemoryClass.PARAMETERS, MemoryClass.GRADIENTS)])
    weight_sizes = np.concatenate((weights, weights // 2))
    passing = memory.is_of(MemoryClass.TEMPORARIES) & ~memory.in_phase(Phase.OPTIMIZER)
    saved_sizes = np.unique(memory.rows.size_bytes[memory.is_saved])  # of a batch as wide as a layer
    unlike_weights = ~np.isin(memory.rows.size_bytes, weight_sizes)
    like_saved = np.isin(memory.rows.size_bytes, saved_sizes)
    copies = memory.with_frame(lambda frame: "cached_cast" in frame.function) & ~unlike_weights
    kept = memory.is_saved | memory.is_of(MemoryClass.INPUTS)
    return np.flatnonzero((kept & ~copies) | (passing & (unlike_weights | like_saved) & (memory.rows.start > 0)))
