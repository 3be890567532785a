"""Typical steps as trace files of their own, checked by reading them back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from traceadvisor.errors import InputError
from traceadvisor.frozen import frozen
from traceadvisor.judging.breakdown import breakdown
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.report import Recording, StepRow
from traceadvisor.model.steps import StepSource
from traceadvisor.parsing.step_cut import StepCutter
from traceadvisor.text.cleaning import clean

MOST_NEIGHBOURS = 2
"""Steps around the typical one that may be needed for its figures: work that earlier steps launched runs in it."""

MOST_SAVED = 8
"""Recordings whose step is saved."""

SAME_SHARE = 0.001
"""Difference of a figure, as a share of the step, that rounding explains."""

_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)


@frozen
class SavedStep:
    """A step as a trace file."""

    recording_id: str
    file_name: str
    content: bytes
    neighbours: int
    """Steps before and after it in the file."""

    is_same: bool
    """Whether the file, read back, gives the same figures of the step."""


@frozen
class UnsavedStep:
    """A recording without a saved step, and why."""

    recording_id: str
    reason: str


def saved_steps(recordings: tuple[Recording, ...], limits: Limits = LIMITS) -> Iterator[SavedStep | UnsavedStep]:
    """Yield the representative step of each recording, with as few other steps as its figures need."""
    used: set[str] = set()
    for recording in recordings[:MOST_SAVED]:
        saved = _saved(recording, limits)
        if isinstance(saved, SavedStep):
            saved = _renamed(saved, used)
            used.add(saved.file_name)
        yield saved
    for recording in recordings[MOST_SAVED:]:
        yield UnsavedStep(recording.id, f"only the steps of {MOST_SAVED} recordings are saved")


def _saved(recording: Recording, limits: Limits) -> SavedStep | UnsavedStep:
    timeline = recording.timeline
    row = next((row for row in recording.steps if timeline and row.step.index == timeline.step_index), None)
    if row is None:
        return UnsavedStep(recording.id, "it has no complete step")
    if recording.step_source is not StepSource.MARKS:
        return UnsavedStep(recording.id, "its steps have no marks of torch's profiler")
    device = None if recording.device is None else recording.device.index
    name = f"{_UNSAFE.sub('-', clean(recording.id)).strip('-')[-80:]}-step-{row.step.index}.pt.trace.json.gz"
    content, is_same, neighbours = b"", False, 0
    try:
        cutter = StepCutter(recording.path, limits)
        for neighbours in range(MOST_NEIGHBOURS + 1):
            content = cutter.cut(row.step.index, neighbours)
            is_same = _is_same(content, row, device, limits)
            if is_same:
                break
    except InputError as error:
        return UnsavedStep(recording.id, str(error))
    return SavedStep(recording.id, name, content, neighbours, is_same)


def _is_same(content: bytes, row: StepRow, device: int | None, limits: Limits) -> bool:
    """Whether the step's figures are the same in the file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "step.pt.trace.json.gz"
        path.write_bytes(content)
        try:
            found = breakdown(path, limits=limits).get(device, ())
        except InputError:
            return False
    again = next((each for each in found if each.step.index == row.step.index), None)
    if again is None:
        return False
    parts = {category: ns or 0 for category, ns in again.breakdown.parts_ns.items()}
    wanted = {category: ns or 0 for category, ns in row.breakdown.parts_ns.items()}
    least = SAME_SHARE * row.step.duration_ns
    return abs(again.step.duration_ns - row.step.duration_ns) <= least and all(
        abs(parts.get(category, 0) - wanted.get(category, 0)) <= least for category in parts.keys() | wanted.keys()
    )


def _renamed(saved: SavedStep, used: set[str]) -> SavedStep:
    """The step under a name that no other has."""
    name, number = saved.file_name, 2
    while name in used:
        name = f"{number}-{saved.file_name}"
        number += 1
    return SavedStep(saved.recording_id, name, saved.content, saved.neighbours, saved.is_same)
