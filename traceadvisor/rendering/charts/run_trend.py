"""The step time of the runs of one program, from the oldest to the newest."""

from __future__ import annotations

from collections.abc import Sequence

from traceadvisor.model.run import StepState
from traceadvisor.rendering.charts.drawing import (
    WIDTH,
    Anchor,
    Chart,
    Curve,
    Label,
    Tone,
    levels,
    points_path,
    side_labels,
)
from traceadvisor.rendering.charts.palette import STEP_PAINTS
from traceadvisor.rendering.document.table import Cell, Table, timed, titled
from traceadvisor.rendering.units import duration, number_of
from traceadvisor.text.ranges import between

TOP, PLOT_HEIGHT, AXIS_HEIGHT = 22, 64, 20
BOTTOM = TOP + PLOT_HEIGHT
SIDE = 6.0
DOT, THICKNESS = 5.0, 1.25
ROOM_ABOVE = 1.05
MOST_POINTS = 200
"""The newest runs; older ones are in the JSON."""

TABLE_ROWS = 12


def run_trend(title: str, runs: Sequence[tuple[str, str, float]], chart_id: str) -> Chart:
    """A dot for each run of a program, at equal distances.

    ``runs``: date, name and step time in nanoseconds of each run, the oldest first.
    """
    shown = runs[-MOST_POINTS:]
    top_ns = max(ns for _, _, ns in shown) * ROOM_ABOVE or 1.0
    gap = (WIDTH - 2 * SIDE) / max(len(shown) - 1, 1)
    points = [(SIDE + place * gap, BOTTOM - PLOT_HEIGHT * ns / top_ns) for place, (_, _, ns) in enumerate(shown)]
    paint = STEP_PAINTS[StepState.PLAIN]
    (first, *_), (last, _, last_ns) = shown[0], shown[-1]
    return Chart(
        id=chart_id,
        title=title,
        description=f"{number_of(len(shown), 'run')} of {title}, {between(first, last)}; step time of the newest: "
        f"{duration(last_ns)}.",
        height=BOTTOM + AXIS_HEIGHT,
        lines=tuple(levels((TOP, BOTTOM))),
        labels=(
            Label("0%", "14", f"up to {duration(top_ns / ROOM_ABOVE)}", Anchor.START, Tone.QUIET),
            Label("100%", "14", f"newest {duration(last_ns)}", Anchor.END),
            *side_labels(first, last, BOTTOM + 15),
        ),
        data=Table(
            f"Newest runs of {title}",
            titled("Date", "Run", "Step time", words=("Run",)),
            tuple((Cell(date), Cell(name), timed(ns)) for date, name, ns in runs[: -TABLE_ROWS - 1 : -1]),
            noun="run",
        ),
        curves=(
            Curve(points_path(points), paint, THICKNESS, faint=True),
            Curve("".join(points_path([point]) for point in points), paint, DOT),
        ),
    )
