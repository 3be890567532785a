"""Every recorded step as a stacked column, which shows unusual steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceadvisor.model.breakdown import Category
from traceadvisor.model.report import Recording, StepRow
from traceadvisor.rendering.charts.drawing import (
    WIDTH,
    Anchor,
    Chart,
    Label,
    Shape,
    Tone,
    across,
    levels,
    number,
    rectangle,
    side_labels,
)
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.document.table import Cell, Column, Table
from traceadvisor.rendering.units import duration, milliseconds
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.text.ranges import between

TOP = 18
PLOT_HEIGHT = 132
AXIS_HEIGHT = 20
MOST_STEPS = 60
"""More columns would be too thin; the JSON report has the other steps."""

MOST_POINTED_AT = 24
"""Most columns with tooltips, which take up most of the chart's file size."""

MOST_NUMBERS = 12
"""Step numbers that fit below the columns on a phone."""

COLUMN_SHARE = 0.8
"""Width of a column as a share of its slot."""

GAP = 1
"""Gap between the parts of a column, in units; thin parts have none."""

WIDEST_COLUMN = 90
"""In units; otherwise two steps would be very wide columns."""


def per_step(recording: Recording, chart_id: str) -> Chart | None:
    """The steps as stacked columns; None for fewer than two steps."""
    rows = recording.steps[:MOST_STEPS]
    if len(rows) < 2:
        return None
    longest = max(row.breakdown.duration_ns for row in rows) or 1
    used = [category for category in CATEGORY if any(row.breakdown.parts_ns.get(category) for row in rows)]
    return Chart(
        id=chart_id,
        title="Recorded steps",
        caption=_sentence(recording, rows),
        description=_sentence(recording, rows),
        height=TOP + PLOT_HEIGHT + AXIS_HEIGHT,
        shapes=tuple(_columns(rows, longest)),
        lines=tuple(
            levels(
                (TOP + PLOT_HEIGHT * (1 - share) for share in (0.0, 0.5, 1.0)),
                _height_of(recording.step_ns, longest) if recording.step_ns else None,
            )
        ),
        labels=tuple(_labels(recording, rows, longest)),
        data=_table(rows, used),
    )


def _columns(rows: Sequence[StepRow], longest: int) -> Iterator[Shape]:
    """One shape per part of a column; with many columns one shape per category, without tooltips."""
    parts = [part for place, row in enumerate(rows) for part in _parts(place, row, len(rows), longest)]
    if len(rows) <= MOST_POINTED_AT:
        return iter(parts)
    merged: dict[tuple[str, bool], list[Shape]] = {}
    for part in parts:
        merged.setdefault((part.paint.name, part.faint), []).append(part)
    return (
        Shape("".join(part.path for part in alike), alike[0].paint, faint=alike[0].faint) for alike in merged.values()
    )


def _parts(place: int, row: StepRow, columns: int, longest: int) -> Iterator[Shape]:
    width = min(WIDTH / columns * COLUMN_SHARE, WIDEST_COLUMN)
    left = WIDTH / columns * (place + 0.5) - width / 2
    bottom = float(TOP + PLOT_HEIGHT)
    for category, ns in row.breakdown.parts_ns.items():
        if ns:
            height = PLOT_HEIGHT * ns / longest
            bottom -= height
            path = rectangle(left, bottom, width, height - GAP if height > 4 * GAP else height)
            yield Shape(path, PAINTS[category], _tip(row, category, ns), faint=not row.step.typical)


def _tip(row: StepRow, category: Category, ns: int) -> str:
    return f"Step {row.step.index}, {duration(row.breakdown.duration_ns)}: {CATEGORY[category]} {duration(ns)}"


def _labels(recording: Recording, rows: Sequence[StepRow], longest: int) -> Iterator[Label]:
    usual = "median" if recording.typical_step_ns is None else "typical"
    dashed = f"- - {usual} {duration(recording.step_ns)}" if recording.step_ns else None
    yield from side_labels(f"0 to {duration(longest)}, the longest step", dashed)
    every = -(-len(rows) // MOST_NUMBERS)
    for place, row in enumerate(rows):
        if place % every == 0:
            text = f"{row.step.index}" if row.step.typical else f"({row.step.index})"
            middle = across((place + 0.5) / len(rows))
            yield Label(middle, number(TOP + PLOT_HEIGHT + 15), text, Anchor.MIDDLE, Tone.QUIET)


def _height_of(ns: float, longest: int) -> float:
    return max(TOP - 4, TOP + PLOT_HEIGHT - PLOT_HEIGHT * ns / longest)


def _sentence(recording: Recording, rows: Sequence[StepRow]) -> str:
    times = [row.breakdown.duration_ns for row in rows]
    drawn = (
        f"{len(rows)} steps" if len(rows) == len(recording.steps) else f"{len(rows)} of {len(recording.steps)} steps"
    )
    brackets = "" if all(row.step.typical for row in rows) else " Steps in brackets are not typical."
    lengths = between(duration(min(times)), duration(max(times)))
    return f"{drawn}, {lengths}, with step numbers. Colours as above.{brackets}"


def _table(rows: Sequence[StepRow], used: Sequence[Category]) -> Table:
    columns = (
        Column("Step"),
        Column("Total, ms"),
        *(Column(f"{CATEGORY[category]}, ms") for category in used),
        Column("Typical", numeric=False),
    )
    return Table("Recorded steps by category", columns, tuple(_table_row(row, used) for row in rows))


def _table_row(row: StepRow, used: Sequence[Category]) -> tuple[Cell, ...]:
    parts = (Cell(milliseconds(row.breakdown.parts_ns.get(category))) for category in used)
    total = Cell(milliseconds(row.breakdown.duration_ns))
    return (Cell(f"{row.step.index}"), total, *parts, Cell(_whether_typical(row)))


def _whether_typical(row: StepRow) -> str:
    if row.step.left_out is not None:
        return f"no, and left out of all averages: {row.step.left_out}"
    return "yes" if row.step.atypical is None else f"no: {row.step.atypical}"
