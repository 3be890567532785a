"""Reads memory snapshots and sums up what fills the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from traceadvisor.analysis.memory.classes import KINDS
from traceadvisor.analysis.memory.scaling import GrowthLaw, growth_law, guessed_law, programs
from traceadvisor.analysis.memory.snapshot_facts import PASSES, SnapshotFacts
from traceadvisor.analysis.memory.snapshot_figures import snapshot_figures
from traceadvisor.errors import InputError
from traceadvisor.judging.memory_advice import advise
from traceadvisor.model.limits import Limits
from traceadvisor.model.memory_figures import ClassGrowth, MemoryForecast, MemoryGrowth, PassGrowth, SnapshotFigures
from traceadvisor.model.trace import Device
from traceadvisor.parsing.snapshot.snapshot_file import EXPECTED, read_snapshot
from traceadvisor.rules.base import Rule

MOST_COMPARED = 8
"""Snapshots with one device that are held in memory to compare them."""

GIB = 1 << 30

DEVICES_GIB = (16, 24, 40, 48, 80)
"""Common sizes."""

CONTEXT_BYTES = GIB // 2
"""Memory of a device that CUDA itself takes, about."""


def judge_snapshots(
    paths: Iterable[Path], rules: Sequence[Rule], limits: Limits, device: Device | None = None
) -> list[SnapshotFigures | InputError]:
    """The figures of each snapshot with advice, one file at a time; an InputError if it cannot be read.

    ``device``: what all snapshots were made on; None if unknown.
    """
    facts: dict[int, SnapshotFacts] = {}
    judged = [_judged(path, rules, limits, facts, number) for number, path in enumerate(paths)]
    growing = dict(growths(facts, device.memory_bytes if device else None))
    return [
        one if isinstance(one, InputError) else replace(one.on(device) if device else one, growth=growing.get(number))
        for number, one in enumerate(judged)
    ]


def single_device(path: Path, limits: Limits) -> SnapshotFacts | None:
    """The facts of a snapshot of one device; None for several.

    Raises:
        InputError: it cannot be read.
    """
    facts = SnapshotFacts.of(read_snapshot(path, limits))
    return facts[0] if len(facts) == 1 else None


def _judged(
    path: Path, rules: Sequence[Rule], limits: Limits, kept: dict[int, SnapshotFacts], number: int
) -> SnapshotFigures | InputError:
    try:
        snapshot = read_snapshot(path, limits)
        facts = SnapshotFacts.of(snapshot)
        if len(facts) == 1 and len(kept) < MOST_COMPARED:
            kept[number] = facts[0]
        return replace(snapshot_figures(snapshot, facts), advice=tuple(advise(one, rules) for one in facts))
    except InputError as error:
        return error
    except MemoryError:
        remedy = "Record with a smaller max_entries, or use a machine with more memory."
        return InputError(path, "reading it needs more memory than available", expected=EXPECTED, remedy=remedy)


def growths(facts: Mapping[int, SnapshotFacts], capacity: int | None = None) -> Iterator[tuple[int, MemoryGrowth]]:
    """The growth by the number of the snapshot that is scaled: a law if several are of one program, else guesses.

    ``capacity``: of the device that they were made on; None if unknown.
    """
    sizes = (*((capacity,) if capacity else ()), *(one * GIB for one in DEVICES_GIB))
    number_of = {id(one): number for number, one in facts.items()}
    for group in programs(tuple(facts.values())):
        if law := growth_law(group):
            ordered = sorted(group, key=lambda one: one.history.peak_bytes)
            yield number_of[id(law.base)], _growth(law, sizes, tuple(one.snapshot.path.name for one in ordered))
            continue
        for one in group:
            if guess := guessed_law(one):
                yield number_of[id(one)], _growth(guess, sizes, (one.snapshot.path.name,))


def _growth(law: GrowthLaw, sizes: Sequence[int], names: tuple[str, ...]) -> MemoryGrowth:
    twice = MemoryForecast(None, 2, 2, 2, law.peak_bytes(2, -1), law.peak_bytes(2), law.peak_bytes(2, 1))
    fitting = tuple(_fitting(law, size) for size in sizes)
    classes, passes = tuple(_by_class(law)), tuple(_by_pass(law))
    return MemoryGrowth(names, law.ratios, law.paired_share, law.differs, twice, fitting, classes, passes)


def _by_class(law: GrowthLaw) -> Iterator[ClassGrowth]:
    memory, at_peak = law.base, law.base.peak_rows
    for place, kind in enumerate(KINDS):
        mine = at_peak[memory.found.kind[at_peak] == place]
        if mine.size:
            powers = np.bincount(law.exponent[mine].astype(np.int64), memory.rows.size_bytes[mine], minlength=3)
            yield ClassGrowth(kind, *(int(one) for one in powers[:3]))


def _by_pass(law: GrowthLaw) -> Iterator[PassGrowth]:
    memory = law.base
    part, now, twice = memory.passes_at(np.arange(memory.history.instants)), law.held_bytes(1), law.held_bytes(2)
    for place, name in enumerate(PASSES):
        if (mine := part == place).any():
            yield PassGrowth(name, int(now[mine].max()), int(twice[mine].max()))


def _fitting(law: GrowthLaw, capacity: int) -> MemoryForecast:
    """The size that fits beside the context of CUDA if the allocator keeps as much unused as at the recorded peak."""
    history = law.base.history
    kept = max(int(history.reserved_bytes[history.peak]) / max(history.peak_bytes, 1), 1.0)
    room = int((capacity - CONTEXT_BYTES) / kept)
    surely, expected, best = (law.largest_factor(room, doubt) for doubt in (1, 0, -1))
    low, high = min(surely, best), max(surely, best)  # below the snapshot's own size, the ends change places
    return MemoryForecast(capacity, low, expected, high, peak_bytes=room)
