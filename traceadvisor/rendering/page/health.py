"""Notes on damaged or incomplete input."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import replace
from typing import assert_never

from traceadvisor.frozen import frozen
from traceadvisor.model.health import HealthNote, HealthStatus
from traceadvisor.model.report import Report
from traceadvisor.rendering.lists import listed
from traceadvisor.rendering.units import count, number_of
from traceadvisor.text.cleaning import clipped

LONGEST_LINE = 160
"""Characters of a problem in the line that unfolds."""

_SENTENCE = re.compile(r"(?<=[.;:]) ")

ON_STEPS = frozenset({"step-left-out", "step-dropped"})

QUIET = frozenset({"busy-machine", "clock", "disturbed", "loader-disturbed"})

DAMAGE = frozenset(
    {
        "cut-before-device",
        "fault",
        "no-kernels",
        "nothing-recorded",
        "packing-damaged",
        "truncated",
        "unreadable",
    }
)
"""Codes of notes on input that is broken. Other problems make figures less certain, and are a quiet line."""

LOST_EVENTS_SHARE = 0.01
"""From this share of events lost or repaired on, the input counts as broken."""

COUNTED = "events-dropped"
"""The code of the note that repeats, for one recording, the event counts of all."""


@frozen
class NoteView:
    """One note and the recordings it is about."""

    message: str
    about: str | None
    """None if the note concerns the whole input, or the report has only one recording."""


@frozen
class HealthView:
    """Health notes: problems make figures less certain, remarks do not."""

    title: str | None
    """None without problems."""

    unusable: bool
    problems: tuple[NoteView, ...]
    remarks: tuple[NoteView, ...]
    quiet: tuple[NoteView, ...] = ()
    """How the run differs from its recording: lines under the verdict."""

    line: str | None = None
    """The first problem, and how many more there are; None without problems."""

    damaged: bool = False
    """Whether the input is broken or unusable, and not only disturbed or incomplete."""


def health_view(report: Report) -> HealthView:
    """The state of the input."""
    problems = (
        *_notes(report, lambda note: note.degrades and note.code in DAMAGE),
        *_counts(report),
        *_notes(report, lambda note: note.degrades and note.code not in DAMAGE),
    )
    damaged = is_damaged(report)
    return HealthView(
        title=_title(report.health.status),
        unusable=report.health.status is HealthStatus.UNUSABLE,
        problems=problems,
        remarks=_notes(report, lambda note: not note.degrades and note.code not in QUIET),
        quiet=quiet_notes(report),
        line=_line(report.health.status, problems, damaged=damaged),
        damaged=damaged,
    )


def is_damaged(report: Report) -> bool:
    """Whether the input is broken or unusable, so that a reader must know it first."""
    health = report.health
    lost = health.events_dropped + health.events_repaired
    return (
        health.status is HealthStatus.UNUSABLE
        or lost > LOST_EVENTS_SHARE * (health.events_read + health.events_dropped)
        or any(row.note.code in DAMAGE and row.note.degrades for row in report.health_notes)
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


def _line(status: HealthStatus, problems: tuple[NoteView, ...], *, damaged: bool) -> str | None:
    match status:
        case HealthStatus.OK:
            return None
        case HealthStatus.DEGRADED:
            return f"{'Damaged input' if damaged else 'Caution'}: {_first_line(problems)}"
        case HealthStatus.UNUSABLE:
            return f"Unusable recording: {_first_line(problems)}"
        case _:
            assert_never(status)


def _first_line(problems: tuple[NoteView, ...]) -> str:
    """The first sentence of the first problem, and how many more there are."""
    if not problems:
        return "some input could not be used."
    sentence = clipped(_SENTENCE.split(problems[0].message, maxsplit=1)[0].rstrip("."), LONGEST_LINE)
    more = len(problems) - 1
    return f"{sentence[:1].lower() if sentence[1:2].islower() else sentence[:1]}{sentence[1:]}." + (
        f" {number_of(more, 'more note')}." if more else ""
    )


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
    about: dict[str, dict[str, None]] = {}
    for row in report.health_notes:
        if wanted(row.note) and not (one and row.note.code == COUNTED):
            ids = about.setdefault(row.note.message, {})
            if row.recording_id is not None:
                ids[row.recording_id] = None
    return tuple(NoteView(message, listed(list(ids)) if ids and not one else None) for message, ids in about.items())
