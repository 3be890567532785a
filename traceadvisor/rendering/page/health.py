"""What a reader must know before believing the figures."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import assert_never

from traceadvisor.model.health import HealthNote, HealthStatus
from traceadvisor.model.report import Report
from traceadvisor.rendering.units import count

ON_STEPS = frozenset({"step-left-out", "step-dropped"})

COUNTED = "events-dropped"
"""The note that says of a recording what the first line says of all."""


@dataclass(frozen=True, slots=True)
class NoteView:
    """One note and the recordings it is about."""

    message: str
    about: str | None
    """None where it is about the input as a whole, or there is one recording only."""


@dataclass(frozen=True, slots=True)
class HealthView:
    """Notes that weaken figures apart from those that only inform."""

    title: str | None
    """None when nothing is off."""

    unusable: bool
    problems: tuple[NoteView, ...]
    remarks: tuple[NoteView, ...]


def health_view(report: Report) -> HealthView:
    """The state of the input, what is wrong first."""
    return HealthView(
        title=_title(report.health.status),
        unusable=report.health.status is HealthStatus.UNUSABLE,
        problems=(*_counts(report), *_notes(report, lambda note: note.degrades)),
        remarks=_notes(report, lambda note: not note.degrades),
    )


def without_step_notes(report: Report, drawn: Container[str]) -> Report:
    """The report without notes on single steps of recordings whose steps are drawn: there they are said again."""
    notes = (row for row in report.health_notes if row.note.code not in ON_STEPS or row.recording_id not in drawn)
    return replace(report, health_notes=tuple(notes))


def warnings(report: Report) -> tuple[NoteView, ...]:
    """What must be told even where there is room for little: what is wrong, and what is to be kept to oneself."""
    return (*_counts(report), *_notes(report, lambda note: note.degrades or note.code == "secrets"))


def _title(status: HealthStatus) -> str | None:
    match status:
        case HealthStatus.OK:
            return None
        case HealthStatus.DEGRADED:
            return "Read this first: what was recorded limits what can be said"
        case HealthStatus.UNUSABLE:
            return "Read this first: the recording could not be used"
        case _:
            assert_never(status)


def _counts(report: Report) -> tuple[NoteView, ...]:
    health = report.health
    losses = (
        (health.events_dropped, "could not be read or used and were left out"),
        (health.events_repaired, "had to be repaired, for broken JSON or values that cannot be"),
    )
    told = [f"{count(number)} {what}" for number, what in losses if number]
    message = f"Of {count(health.events_read + health.events_dropped)} events, {'; '.join(told)}."
    return (NoteView(message, None),) if told else ()


def _notes(report: Report, wanted: Callable[[HealthNote], bool]) -> tuple[NoteView, ...]:
    """One view per message, naming every recording it holds for."""
    one = len(report.recordings) < 2
    about: dict[str, list[str]] = {}
    for row in report.health_notes:
        if wanted(row.note) and not (one and row.note.code == COUNTED):
            ids = about.setdefault(row.note.message, [])
            if row.recording_id is not None and row.recording_id not in ids:
                ids.append(row.recording_id)
    return tuple(NoteView(message, ", ".join(ids) if ids and not one else None) for message, ids in about.items())
