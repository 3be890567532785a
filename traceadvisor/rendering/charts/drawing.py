"""What a picture is made of.

Shapes live on a canvas 1000 units wide that is stretched to whatever width the
reader's screen has; labels are placed by percentage and never stretched. So the
same picture fits a phone and a printed page with text of the same size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from traceadvisor.rendering.charts.palette import Paint
from traceadvisor.rendering.table import Table

WIDTH = 1000
"""Units across; on a desktop one unit is about one pixel."""


class Anchor(Enum):
    """Which end of a label stands at its place."""

    START = "start"
    MIDDLE = "middle"
    END = "end"


class Tone(Enum):
    """How a label is set."""

    PLAIN = "plain"
    QUIET = "quiet"
    MINOR = "minor"
    """Quiet, and left out where there is little room."""

    STRONG = "strong"


@dataclass(frozen=True, slots=True)
class Shape:
    """A filled path in one colour."""

    path: str
    paint: Paint
    tip: str | None = None
    """Shown when pointed at."""

    faint: bool = False


@dataclass(frozen=True, slots=True)
class Strip:
    """Runs along one line, drawn as a thick stroke: far shorter to write than a rectangle per run."""

    path: str
    thickness: int
    paint: Paint


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points, or the points alone, as thick on a phone as on a desktop."""

    path: str
    paint: Paint
    thickness: float
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A thin rule; positions across are percentages, positions down are units."""

    x1: str
    y1: str
    x2: str
    y2: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """Text at a percentage of the width."""

    x: str
    y: str
    text: str
    anchor: Anchor = Anchor.START
    tone: Tone = Tone.PLAIN
    on: Paint | None = None
    """The colour it stands on, if not the page's."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """What a colour means, with its figure."""

    paint: Paint
    label: str
    figure: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with everything a reader who cannot see it needs."""

    id: str
    title: str
    caption: str | None
    """A sentence shown above it, where the picture does not speak for itself."""

    description: str
    """What a reader who cannot see it is told."""

    height: int
    lines: tuple[Line, ...]
    labels: tuple[Label, ...]
    legend: tuple[LegendEntry, ...]
    data: Table
    shapes: tuple[Shape, ...] = ()
    strips: tuple[Strip, ...] = ()
    curves: tuple[Curve, ...] = ()

    @property
    def view_box(self) -> str:
        """The stretched canvas."""
        return f"0 0 {WIDTH} {self.height}"


def rectangle(x: float, y: float, width: float, height: float) -> str:
    """A rectangle as a path, in units."""
    return f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h{number(-width)}z"


def runs_path(runs: Iterable[tuple[int, int]], y: float) -> str:
    """Runs ``(start, end)`` in units, ascending, as one stroked path along ``y``."""
    parts: list[str] = []
    at: int | None = None
    for start, end in runs:
        parts.append(f"M{start} {number(y)}" if at is None else f"m{start - at} 0")
        parts.append(f"h{end - start}")
        at = end
    return "".join(parts)


def points_path(points: Iterable[tuple[float, float]]) -> str:
    """One line from point to point; a single point becomes a dot where ends are round."""
    parts: list[str] = []
    at_x = at_y = 0.0
    for x, y in points:
        to_x, to_y = round(x, 1), round(y, 1)
        step = f"{number(to_x - at_x)} {number(to_y - at_y)}"
        parts.append(f"l{step}" if parts else f"M{step}")
        at_x, at_y = to_x, to_y
    return "".join(parts) + ("h0" if len(parts) == 1 else "")


def number(value: float) -> str:
    """A coordinate with at most two decimals and no trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def across(share: float) -> str:
    """A share of the width as SVG writes it."""
    return f"{number(share * 100)}%"
