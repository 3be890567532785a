"""Line charts over the time of a run; long series are thinned, but keep all peaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Float64, Int64, Mask
from traceadvisor.rendering.charts.clock import RunClock, shading, shading_label
from traceadvisor.rendering.charts.drawing import Chart, Curve, LegendEntry, levels, points_path, side_labels
from traceadvisor.rendering.charts.step_bar import time_axis
from traceadvisor.rendering.document.table import Cell, Column, Table
from traceadvisor.rendering.units import NOT_MEASURED, duration

TOP = 32
PLOT_HEIGHT = 92
BOTTOM = TOP + PLOT_HEIGHT
AXIS_HEIGHT = 20
THICKNESS = 1.75
DOT = 4.0
"""Diameter of a single sample, which would be invisible as a line."""

TABLE_ROWS = 12
"""Rows in the data table of the chart."""

ROOM_ABOVE = 1.05
"""Space above the highest sample if no limit line is drawn."""


@frozen(eq=False)
class Trend:
    """One line."""

    name: LegendEntry
    time_ns: Int64
    values: Float64
    broken_off: Mask
    """Rows at which all sampling was interrupted."""

    @property
    def has_readings(self) -> bool:
        """Whether there is at least one sample."""
        return bool(np.isfinite(self.values).any())


@frozen
class Limit:
    """A value drawn as a dashed limit line."""

    value: float
    words: str


@frozen
class Subject:
    """The subject of a chart."""

    title: str
    words: Callable[[float], str]
    """Formats a value with its unit."""

    limit: Limit | None = None
    least_top: float = 0.0
    """Lowest value for the top of the scale."""

    over: str = "the run"
    """The period that the chart covers, in words."""


def trend_chart(subject: Subject, trends: Sequence[Trend], clock: RunClock, chart_id: str) -> Chart | None:
    """All lines with samples on one scale from 0; None without samples."""
    drawn = [trend for trend in trends if trend.has_readings]
    if not drawn:
        return None
    top, limit = _top(subject, drawn), subject.limit
    return Chart(
        id=chart_id,
        title=subject.title,
        description=_sentence(subject, drawn),
        height=BOTTOM + AXIS_HEIGHT,
        shapes=tuple(shading(clock, TOP, PLOT_HEIGHT)),
        lines=tuple(
            levels((_y(top * share, top) for share in (0.0, 0.5, 1.0)), _y(limit.value, top) if limit else None)
        ),
        labels=(
            *side_labels(f"up to {subject.words(top)}", f"- - {limit.words}" if limit else None),
            *shading_label(clock, 25),
            *time_axis(clock.length_ns, BOTTOM + 15),
        ),
        legend=tuple(trend.name for trend in drawn),
        curves=tuple(curve for trend in drawn for curve in _curves(trend, clock, top)),
        data=_table(subject, drawn, clock),
    )


def _top(subject: Subject, drawn: Sequence[Trend]) -> float:
    """The value at the top of the chart; never 0."""
    highest = max(float(np.nanmax(trend.values)) for trend in drawn)
    limit = subject.limit.value if subject.limit else 0.0
    return max(highest if highest <= limit else highest * ROOM_ABOVE, limit, subject.least_top) or 1.0


def _y(value: float, top: float) -> float:
    return BOTTOM - PLOT_HEIGHT * min(max(value / top, 0.0), 1.0)


def _curves(trend: Trend, clock: RunClock, top: float) -> Iterator[Curve]:
    """Uninterrupted sequences as lines; single samples as dots."""
    stretches = thinned(trend.time_ns, trend.values, trend.broken_off)
    paths = [
        (
            rows.size,
            points_path((clock.across(int(trend.time_ns[row])), _y(float(trend.values[row]), top)) for row in rows),
        )
        for rows in stretches
    ]
    for thickness, alone in ((THICKNESS, False), (DOT, True)):
        path = "".join(path for size, path in paths if (size == 1) is alone)
        if path:
            yield Curve(path, trend.name.paint, thickness)


def _sentence(subject: Subject, drawn: Sequence[Trend]) -> str:
    parts = "; ".join(
        f"{trend.name.label} from {subject.words(float(np.nanmin(trend.values)))} "
        f"to {subject.words(float(np.nanmax(trend.values)))}"
        for trend in drawn
    )
    limit = f" Dashed line: {subject.limit.words}." if subject.limit else ""
    return f"{subject.title} over {subject.over}: {parts}.{limit}"


def _table(subject: Subject, drawn: Sequence[Trend], clock: RunClock) -> Table:
    columns = (Column("From"), *(Column(f"{trend.name.label}, {kind}") for trend in drawn for kind in ("mean", "peak")))
    edges_ns = np.linspace(clock.start_ns, clock.end_ns, TABLE_ROWS + 1)
    edges_ns[-1] += 1
    rows = tuple(
        (
            Cell(duration(start - clock.start_ns) if start > clock.start_ns else "0"),
            *(cell for trend in drawn for cell in _within(subject, trend, start, end)),
        )
        for start, end in zip(edges_ns[:-1].tolist(), edges_ns[1:].tolist(), strict=True)
    )
    return Table(f"{subject.title} over time", columns, rows)


def _within(subject: Subject, trend: Trend, start_ns: float, end_ns: float) -> tuple[Cell, Cell]:
    here = trend.values[slice(*np.searchsorted(trend.time_ns, (start_ns, end_ns)))]
    read = here[np.isfinite(here)]
    if not read.size:
        return Cell(NOT_MEASURED), Cell(NOT_MEASURED)
    return Cell(subject.words(float(read.mean()))), Cell(subject.words(float(read.max())))


MOST_POINTS = 200
"""Points per line, without its two ends."""

GAP_INTERVALS = 3
"""Samples further apart than this multiple of their usual interval are not joined.

The interval is per figure, because costly figures are sampled less often.
"""

SHORTEST_GAP_NS = 1_000_000_000
"""Shorter gaps are only delays on a busy machine."""


def thinned(time_ns: Int64, values: Float64, broken_off: Mask) -> tuple[Int64, ...]:
    """Rows to draw, one array per uninterrupted sequence of samples.

    Args:
        time_ns: when each row was sampled, ascending; shape ``(n,)``.
        values: the samples, NaN if missing; shape ``(n,)``.
        broken_off: rows at which all sampling was interrupted; shape ``(n,)``.
    """
    read = np.flatnonzero(np.isfinite(values))
    if not read.size:
        return ()
    breaks_before = np.cumsum(broken_off)
    spacing_ns = np.diff(time_ns[read])
    usual_ns = float(np.median(spacing_ns)) if spacing_ns.size else 0.0
    gaps = (np.diff(breaks_before[read]) > 0) | (spacing_ns > max(GAP_INTERVALS * usual_ns, SHORTEST_GAP_NS))
    stretch_of = np.concatenate(([0], np.cumsum(gaps)))
    kept = _peaks(time_ns, values, read)
    return tuple(np.split(read[kept], np.flatnonzero(np.diff(stretch_of[kept])) + 1))


def _peaks(time_ns: Int64, values: Float64, read: Int64) -> Int64:
    """Positions of the samples to keep: the minimum and maximum of each time slot, and the first and last sample.

    If all samples of a slot are equal, its first and last are kept, so that the slope of a rise stays correct.
    """
    if read.size <= MOST_POINTS:
        return np.arange(read.size)
    edges_ns = np.linspace(time_ns[read[0]], time_ns[read[-1]], MOST_POINTS // 2 + 1)[1:-1]
    slots = np.split(np.arange(read.size), np.searchsorted(time_ns[read], edges_ns))
    kept = [0, read.size - 1]
    for slot in slots:
        if slot.size:
            least, largest = int(slot[np.argmin(values[read[slot]])]), int(slot[np.argmax(values[read[slot]])])
            kept += [least, largest] if least != largest else [int(slot[0]), int(slot[-1])]
    return np.unique(kept)
