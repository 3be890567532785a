"""The parts of a chart.

Shapes use a canvas 1000 units wide, which is stretched to the width of the
screen. Labels are placed by percentage and not stretched. So the same chart fits
a phone and a printed page, with text of the same size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.rendering.charts.palette import Paint
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Table

WIDTH = 1000
"""Units across; on a desktop one unit is about one pixel."""


class Anchor(Enum):
    """The end of a label that is at its position."""

    START = "start"
    MIDDLE = "middle"
    END = "end"


class Tone(Enum):
    """The style of a label."""

    PLAIN = "plain"
    QUIET = "quiet"
    MINOR = "minor"
    """Like QUIET, but hidden on narrow screens."""

    STRONG = "strong"


@frozen
class Shape:
    """A filled path in one colour."""

    path: str
    paint: Paint
    tip: str | None = None
    """Tooltip."""

    faint: bool = False


@frozen
class Strip:
    """Intervals on one line, drawn as a thick stroke; needs less markup than a rectangle each."""

    path: str
    thickness: int
    paint: Paint


@frozen
class Curve:
    """A line through points, or single points; its thickness does not depend on the screen."""

    path: str
    paint: Paint
    thickness: float
    faint: bool = False


@frozen
class Line:
    """A thin line; x positions are percentages, y positions are units."""

    x1: str
    y1: str
    x2: str
    y2: str
    dashed: bool = False


@frozen
class Label:
    """Text at a percentage of the width."""

    x: str
    y: str
    text: str
    anchor: Anchor = Anchor.START
    tone: Tone = Tone.PLAIN
    on: Paint | None = None
    """The colour behind the label, if not that of the page."""


@frozen
class Part:
    """A rectangle with a label, which is cut at its edge."""

    box: tuple[str, str, str, str]
    """Left, top, width and height; across in percent."""

    paint: Paint
    label: str
    tip: str
    is_faint: bool = False


@frozen
class LegendEntry:
    """A colour with its meaning and a figure."""

    paint: Paint
    label: str
    figure: str
    share: float | None = None
    """Its part of the whole, 0..1, if it is one."""


@frozen
class Chart:
    """A chart with its text description and its data table."""

    id: str
    title: str
    description: str
    """The text alternative for screen readers."""

    height: int
    data: Table
    caption: str | None = None
    """A sentence above the chart, if it needs one."""

    lines: tuple[Line, ...] = ()
    labels: tuple[Label, ...] = ()
    legend: tuple[LegendEntry, ...] = ()
    shapes: tuple[Shape, ...] = ()
    strips: tuple[Strip, ...] = ()
    curves: tuple[Curve, ...] = ()
    parts: tuple[Part, ...] = ()
    text_bars: tuple[LegendEntry, ...] = ()
    """Bars for a terminal; those of the legend without."""

    events: str | None = None
    """JSON from which the script of a page draws the same with each event; colours are places in the legend."""

    detail: Detail = Detail.PAGE


AS_TABLE = "As a table"
"""The title of a chart's data."""


def rectangle(x: float, y: float, width: float, height: float) -> str:
    """A rectangle as an SVG path, in units."""
    return f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z"


def runs_path(runs: Iterable[tuple[int, int]], y: float) -> str:
    """Intervals ``(start, end)`` in units, ascending, as one SVG path along ``y``."""
    parts: list[str] = []
    at: int | None = None
    for start, end in runs:
        parts.append(f"M{start} {number(y)}" if at is None else f"m{start - at} 0")
        parts.append(f"h{end - start}")
        at = end
    return "".join(parts)


def points_path(points: Iterable[tuple[float, float]]) -> str:
    """A line through the points as an SVG path; a single point becomes a dot."""
    parts: list[str] = []
    at_x = at_y = 0.0
    for x, y in points:
        to_x, to_y = round(x, 1), round(y, 1)
        step = f"{number(to_x - at_x)} {number(to_y - at_y)}"
        parts.append(f"l{step}" if parts else f"M{step}")
        at_x, at_y = to_x, to_y
    return "".join(parts) + ("h0" if len(parts) == 1 else "")


def levels(heights: Iterable[float], dashed: float | None = None) -> Iterator[Line]:
    """Lines across the whole chart, and perhaps a dashed one."""
    for y in map(number, heights):
        yield Line("0%", y, "100%", y)
    if dashed is not None:
        yield Line("0%", number(dashed), "100%", number(dashed), dashed=True)


def side_labels(left: str, right: str | None, y: float = 11) -> Iterator[Label]:
    """Quiet words at both sides of the chart."""
    yield Label("0%", number(y), left, Anchor.START, Tone.QUIET)
    if right is not None:
        yield Label("100%", number(y), right, Anchor.END, Tone.QUIET)


def number(value: float) -> str:
    """A coordinate with at most two decimals and no trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def across(share: float) -> str:
    """A share of the width as an SVG percentage."""
    return f"{number(share * 100)}%"
