"""Reads memory snapshots and sums up what fills the device."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from traceadvisor.analysis.memory.snapshot_figures import snapshot_figures
from traceadvisor.errors import InputError
from traceadvisor.model.limits import Limits
from traceadvisor.model.memory_figures import SnapshotFigures
from traceadvisor.parsing.snapshot.snapshot_file import EXPECTED, read_snapshot


def judge_snapshots(paths: Iterable[Path], limits: Limits) -> list[SnapshotFigures | InputError]:
    """The figures of each snapshot, one file at a time; an InputError if it cannot be read."""
    return [_judged(path, limits) for path in paths]


def _judged(path: Path, limits: Limits) -> SnapshotFigures | InputError:
    try:
        return snapshot_figures(read_snapshot(path, limits))
    except InputError as error:
        return error
    except MemoryError:
        remedy = "Record with a smaller max_entries, or use a machine with more memory."
        return InputError(path, "reading it needs more memory than available", expected=EXPECTED, remedy=remedy)
