"""Verdicts on the step as a whole, as the templates read them."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.findings import Evidence
from traceadvisor.model.report import Recording, Report, Umbrella
from traceadvisor.rendering.table import Cell, Column, Table
from traceadvisor.rendering.units import figure


@dataclass(frozen=True, slots=True)
class UmbrellaView:
    """One verdict with its figures."""

    summary: str
    table: Table


def umbrella_views(recording: Recording) -> tuple[UmbrellaView, ...]:
    """The verdicts on one recording."""
    return tuple(map(_view, recording.umbrellas))


def umbrella_table(report: Report) -> Table:
    """The verdicts on all recordings."""
    columns = (
        Column("Recording", numeric=False),
        Column("What", numeric=False),
        Column("Measured", numeric=False),
        Column("Figure"),
    )
    rows = tuple(
        (Cell(recording.id), Cell(umbrella.rule.title), Cell(row.label), Cell(_value(row)))
        for recording in report.recordings
        for umbrella in recording.umbrellas
        for row in umbrella.evidence
    )
    return Table("The step as a whole", columns, rows)


def _view(umbrella: Umbrella) -> UmbrellaView:
    columns = (Column("Measured", numeric=False), Column("Figure"))
    rows = tuple((Cell(row.label), Cell(_value(row))) for row in umbrella.evidence)
    return UmbrellaView(f"{umbrella.fix.summary}.", Table(umbrella.rule.title, columns, rows))


def _value(row: Evidence) -> str:
    return row.value if isinstance(row.value, str) else figure(row.value, row.unit)
