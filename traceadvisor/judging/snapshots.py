"""Reads memory snapshots and sums up what fills the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from traceadvisor.analysis.memory.snapshot_facts import SnapshotFacts
from traceadvisor.analysis.memory.snapshot_figures import snapshot_figures
from traceadvisor.errors import InputError
from traceadvisor.judging.memory_advice import advise
from traceadvisor.judging.memory_growth import growths
from traceadvisor.model.limits import Limits
from traceadvisor.model.memory_figures import SnapshotFigures
from traceadvisor.model.trace import Device
from traceadvisor.parsing.snapshot.snapshot_file import EXPECTED, read_snapshot
from traceadvisor.rules.base import Rule

MOST_COMPARED = 8
"""Snapshots with one device that are held in memory to compare them."""


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
