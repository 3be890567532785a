"""Notes on damaged or incomplete input."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import assert_never

from traceadvisor.model.health import HealthNote, HealthStatus
from traceadvisor.model.report import Report
from traceadvisor.rendering.units import count

ON_STEPS = frozenset({"step-left-out", "step-dropped"})

QUIET = frozenset({"clock", "disturbed", "loader-disturbed"})

COUNTED = "events-dropped"
"""The code of the note that repeats, for one recording, the event counts of all."""


@dataclass(frozen=True, slots=True)
class NoteView:
    """One note and the recordings it is about."""

    message: str
    about: str | None
    """None if the note concerns the whole input, or the report has only one recording."""


@dataclass(frozen=True, slots=True)
class HealthView:
    """Health notes: problems make figures less certain, remarks do not."""

    title: str | None
    """None without problems."""

    unusable: bool
    problems: tuple[NoteView, ...]
    remarks: tuple[NoteView, ...]
    quiet: tuple[NoteView, ...] = ()
    """How the run differs from its recording: lines under the verdict."""


def health_view(report: Report) -> HealthView:
    """The state of the input."""
    return HealthView(
        title=_title(report.health.status),
        unusable=report.health.status is HealthStatus.UNUSABLE,
        problems=(*_counts(report), *_notes(report, lambda note: note.degrades)),
        remarks=_notes(report, lambda note: not note.degrades and note.code not in QUIET),
        quiet=quiet_notes(report),
    )


def without_step_notes(report: Report, drawn: Container[str]) -> Report:
    """The report without notes on single steps of the drawn recordings, which show these notes themselves."""
    notes = (row for row in report.health_notes if row.note.code not in ON_STEPS or row.recording_id not in drawn)
    return replace(report, health_notes=tuple(notes))


def warnings(report: Report) -> tuple[NoteView, ...]:
    """The notes for a short summary: problems, and secrets found in the recording."""
    return (*_counts(report), *_notes(report, lambda note: note.degrades or note.code == "secrets"))


def quiet_notes(report: Report) -> tuple[NoteView, ...]:
    """The notes on how the run differs from its recording: lines under the verdict, because the input is sound."""
    return _notes(report, lambda note: note.code in QUIET)


def _title(status: HealthStatus) -> str | None:
    match status:
        case HealthStatus.OK:
            return None
        case HealthStatus.DEGRADED:
            return "Caution: incomplete recording"
        case HealthStatus.UNUSABLE:
            return "Caution: unusable recording"
        case _:
            assert_never(status)


def _counts(report: Report) -> tuple[NoteView, ...]:
    health = report.health
    losses = (
        (health.events_dropped, "were left out because they could not be read"),
        (health.events_repaired, "were repaired because of broken JSON or impossible values"),
    )
    parts = [f"{count(number)} {what}" for number, what in losses if number]
    message = f"{count(health.events_read + health.events_dropped)} events in all: {'; '.join(parts)}."
    return (NoteView(message, None),) if parts else ()


def _notes(report: Report, wanted: Callable[[HealthNote], bool]) -> tuple[NoteView, ...]:
    """One view per message, with the recordings that it concerns."""
    one = len(report.recordings) < 2
    about: dict[str, list[str]] = {}
    for row in report.health_notes:
        if wanted(row.note) and not (one and row.note.code == COUNTED):
            ids = about.setdefault(row.note.message, [])
            if row.recording_id is not None and row.recording_id not in ids:
                ids.append(row.recording_id)
    return tuple(NoteView(message, ", ".join(ids) if ids and not one else None) for message, ids in about.items())
