"""Notes on damaged or incomplete input."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace

from traceadvisor.frozen import frozen
from traceadvisor.model.health import HealthNote, HealthStatus
from traceadvisor.model.report import RecordingNote, Report
from traceadvisor.rendering.charts.step_bar import is_changed
from traceadvisor.rendering.document.blocks import Fold, FoldLook, Items, Mark, Span
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.units import count, number_of
from traceadvisor.rendering.words import listed
from traceadvisor.text.cleaning import clipped

LONGEST_LINE = 160
"""Characters of a problem in the line that unfolds."""

_SENTENCE = re.compile(r"(?<=[.;:]) ")

ON_STEPS = frozenset({"step-left-out", "step-dropped"})

BUSY = "busy-machine"
QUIET = frozenset({BUSY, "clock", "disturbed", "loader-disturbed", "other-steps", "ran-ahead"})

NOTHING, TOO_SHORT = "nothing-recorded", "window-not-reached"

DAMAGE = frozenset({"cut-before-device", "fault", "no-kernels", NOTHING, "packing-damaged", "truncated", "unreadable"})
"""Codes of notes on input that is broken. Other problems make figures less certain, and are a quiet line."""

LOST_EVENTS_SHARE = 0.01
"""From this share of events lost or repaired on, the input counts as broken."""

COUNTED = "events-dropped"
"""The code of the note that repeats, for one recording, the event counts of all."""


def health_fold(report: Report) -> Fold | None:
    """Notes on less certain figures: damage of the input, then differences of the run from its recording. None
    without any.
    """
    problems = (
        *_notes(report, lambda note: note.degrades and note.code in DAMAGE),
        *_counts(report),
        *_notes(report, lambda note: note.degrades and note.code not in DAMAGE),
        *_notes(report, lambda note: note.code in QUIET - _in_title(report)),
    )
    if not problems and report.health.status is HealthStatus.OK:
        return None
    lead = _lead(report)
    look = FoldLook.DAMAGE if is_damaged(report) else FoldLook.CAUTION
    return Fold(f"{lead}: {_first_line(problems)}", (_items(problems),), look=look, detail=Detail.SUMMARY, lead=lead)


def secrets_fold(report: Report) -> Fold | None:
    """Files of the input that seem to contain secrets; None without any."""
    found = _notes(report, _is_secret)
    if not found:
        return None
    lead = "Secrets"
    return Fold(
        f"{lead}: {_first_line(found)}", (_items(found),), look=FoldLook.CAUTION, detail=Detail.SUMMARY, lead=lead
    )


def remarks_fold(report: Report) -> Fold | None:
    """Notes that leave the figures as certain as they are; None without any."""
    quiet = QUIET - _in_title(report)
    wanted = _notes(report, lambda note: not (note.degrades or note.code in quiet or _is_secret(note)))
    if not wanted:
        return None
    return Fold(
        "Notes", (_items(wanted),), f"{len(wanted)}", "notes", FoldLook.SECTION, Detail.COMMENT, part="Evidence"
    )


def _in_title(report: Report) -> frozenset[str]:
    """The code of the note on slowed steps, if the title of the only chart of a step says it."""
    is_said = len(report.recordings) == 1 and is_changed(report.recordings[0])
    return frozenset({"disturbed"} if is_said else ())


@frozen
class _Note:
    """A note and the recordings it is about; None if it concerns all."""

    message: str
    about: str | None


def _items(notes: Sequence[_Note]) -> Items:
    words = (
        one.message if one.about is None else (f"{one.message} ", Span(f"({one.about})", Mark.QUIET)) for one in notes
    )
    return Items(tuple(words), Detail.SUMMARY, "note")


def _is_secret(note: HealthNote) -> bool:
    return note.code == "secrets" and not note.degrades


def is_damaged(report: Report) -> bool:
    """Whether the input is broken or unusable, so that a reader must know it first."""
    health = report.health
    lost = health.events_dropped + health.events_repaired
    return (
        health.status is HealthStatus.UNUSABLE
        or lost > LOST_EVENTS_SHARE * (health.events_read + health.events_dropped)
        or any(row.note.code in DAMAGE and row.note.degrades for row in _health_notes(report))
    )


def _health_notes(report: Report) -> Iterator[RecordingNote]:
    """The notes. Where a run was too short to be recorded, nothing is damaged: one note says so."""
    is_short = any(row.note.code == TOO_SHORT for row in report.health_notes)
    return (row for row in report.health_notes if not (is_short and row.note.code == NOTHING))


def without_step_notes(report: Report, drawn: Container[str]) -> Report:
    """The report without notes on single steps of the drawn recordings, which show these notes themselves."""
    notes = (row for row in report.health_notes if row.note.code not in ON_STEPS or row.recording_id not in drawn)
    return replace(report, health_notes=tuple(notes))


def _lead(report: Report) -> str:
    if report.health.status is HealthStatus.UNUSABLE:
        return "Unusable recording"
    return "Damaged input" if is_damaged(report) else "Caution"


def _first_line(problems: tuple[_Note, ...]) -> str:
    """The first sentence of the first problem, and how many more there are."""
    if not problems:
        return "some input could not be used."
    sentence = clipped(_SENTENCE.split(problems[0].message, maxsplit=1)[0].rstrip(".;:"), LONGEST_LINE)
    if problems[0].about:
        sentence += f" ({problems[0].about})"
    more = len(problems) - 1
    return f"{sentence[:1].lower() if sentence[1:2].islower() else sentence[:1]}{sentence[1:]}." + (
        f" {number_of(more, 'more note')}." if more else ""
    )


def _counts(report: Report) -> tuple[_Note, ...]:
    health = report.health
    losses = (
        (health.events_dropped, "were left out because they could not be read"),
        (health.events_repaired, "were repaired because of broken JSON or impossible values"),
    )
    parts = [f"{count(number)} {what}" for number, what in losses if number]
    message = f"Of {count(health.events_read + health.events_dropped)} events, {'; '.join(parts)}."
    return (_Note(message, None),) if parts else ()


def _notes(report: Report, wanted: Callable[[HealthNote], bool]) -> tuple[_Note, ...]:
    """One view per message, with the recordings that it concerns; one on a busy machine, that of the first of them."""
    one = len(report.recordings) < 2
    about: dict[str, dict[str, None]] = {}
    busy = next((row.note.message for row in report.health_notes if row.note.code == BUSY), "")
    for row in _health_notes(report):
        if wanted(row.note) and not (one and row.note.code == COUNTED):
            ids = about.setdefault(busy if row.note.code == BUSY else row.note.message, {})
            if row.recording_id is not None:
                ids[row.recording_id] = None
    return tuple(_Note(message, listed(list(ids)) if ids and not one else None) for message, ids in about.items())
