"""Undisturbed steps of the captures of two sides, a dot each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from traceadvisor.frozen import frozen
from traceadvisor.model.comparison import ComparedRun
from traceadvisor.model.report import Recording
from traceadvisor.model.run import StepState
from traceadvisor.rendering.charts.drawing import (
    WIDTH,
    Anchor,
    Chart,
    Curve,
    Label,
    Shape,
    Tone,
    number,
    points_path,
    rectangle,
)
from traceadvisor.rendering.charts.palette import SAVING, STEP_PAINTS
from traceadvisor.rendering.charts.step_bar import time_axis
from traceadvisor.rendering.document.table import Cell, Table, by_column
from traceadvisor.rendering.units import duration, number_of

ROW_HEIGHT = 46
DOTS_TOP, DOTS_HEIGHT = 20, 18
DOT = 5.0
ACROSS_ROW = 5
"""Neighbouring steps stand at this many heights, so that equal ones do not hide each other."""

MOST_DOTS = 250
"""Per capture; of more, the steps at equal distances are drawn."""

MOST_CAPTURES = 4
"""Per side."""

LONG_IN_MEDIANS = 2.0
"""The axis ends at this multiple of the longest median: longer steps are drawn at its end."""

ROOM = 1.02
"""The last dot is whole."""

PAINT = STEP_PAINTS[StepState.PLAIN]


@frozen
class _Row:
    """The steps of one capture."""

    name: str
    steps_ns: tuple[int, ...]
    median_ns: float
    """As the verdict has it: of means of several steps, where loader workers deliver in bursts."""


_COLUMNS: Mapping[str, Callable[[_Row], Cell]] = {
    "Capture": lambda row: Cell(row.name),
    "Steps": lambda row: Cell(f"{len(row.steps_ns):,}"),
    "Shortest": lambda row: Cell(duration(min(row.steps_ns))),
    "Median": lambda row: Cell(duration(row.median_ns)),
    "Longest": lambda row: Cell(duration(max(row.steps_ns))),
}


def step_dots(run: ComparedRun, chart_id: str) -> Chart | None:
    """The steps of the first rank in each capture; None where a side has no single steps, as in a JSON report."""
    if not run.ranks:
        return None
    sides = (("BASE", run.ranks[0].base_recordings), ("HEAD", run.ranks[0].head_recordings))
    rows = [list(_rows(side, recordings)) for side, recordings in sides]
    if not all(rows):
        return None
    return _chart([*rows[0], *rows[1]], chart_id)


def _rows(side: str, recordings: Sequence[Recording]) -> Iterator[_Row]:
    by_run = {one.captured.steps: one.undisturbed_median_step_ns for one in recordings if one.captured}
    distinct = [(steps, ns) for steps, ns in by_run.items() if ns][:MOST_CAPTURES]
    for place, (steps, median_ns) in enumerate(distinct, 1):
        plain = tuple(step.duration_ns for step in steps if step.state is StepState.PLAIN and step.index > 0)
        if plain:
            yield _Row(f"{side} {place}" if len(distinct) > 1 else side, plain, median_ns)


def _chart(rows: Sequence[_Row], chart_id: str) -> Chart:
    longest = max(max(row.steps_ns) for row in rows)
    scale_ns = min(longest * ROOM, LONG_IN_MEDIANS * max(row.median_ns for row in rows)) or 1.0
    height = len(rows) * ROW_HEIGHT
    in_order = [(row, place * ROW_HEIGHT) for place, row in enumerate(rows)]
    beyond = sum(ns > scale_ns for row in rows for ns in row.steps_ns)
    caption = "Each dot is an undisturbed step, without the profiler; the line is the median."
    if beyond:
        caption += f" {number_of(beyond, 'longer step')} at the right end."
    return Chart(
        id=chart_id,
        title="Undisturbed steps of both sides",
        caption=caption,
        description=" ".join(
            f"{row.name}: median {duration(row.median_ns)} of {number_of(len(row.steps_ns), 'step')}." for row in rows
        ),
        height=height + 20,
        shapes=tuple(
            Shape(rectangle(row.median_ns / scale_ns * WIDTH, top + DOTS_TOP - 4, 2, DOTS_HEIGHT + 8), SAVING)
            for row, top in in_order
        ),
        labels=(
            *(Label("0%", number(top + 13), row.name) for row, top in in_order),
            *(
                Label("100%", number(top + 13), f"median {duration(row.median_ns)}", Anchor.END, Tone.QUIET)
                for row, top in in_order
            ),
            *time_axis(scale_ns, height + 16),
        ),
        data=Table("Undisturbed steps", *by_column(_COLUMNS, rows)),
        curves=tuple(_dots(row, top, scale_ns) for row, top in in_order),
    )


def _dots(row: _Row, top: float, scale_ns: float) -> Curve:
    drawn = row.steps_ns[:: -(-len(row.steps_ns) // MOST_DOTS)]
    gap = DOTS_HEIGHT / (ACROSS_ROW - 1)
    points = (
        (min(ns / scale_ns, 1.0) * WIDTH, top + DOTS_TOP + place * 2 % ACROSS_ROW * gap)
        for place, ns in enumerate(drawn)
    )
    return Curve("".join(points_path([point]) for point in points), PAINT, DOT)
