"""Charts as SVG."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from traceadvisor.rendering.charts.drawing import WIDTH, Chart, Curve, Label, Line, Part, Shape, Tone
from traceadvisor.rendering.charts.palette import SAVING, SAVING_RANGE, TRACK, Paint
from traceadvisor.rendering.document.blocks import RangeBar
from traceadvisor.rendering.writers.elements import element, joined

FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
QUIET = frozenset({Tone.QUIET, Tone.MINOR})


def drawing(chart: Chart) -> Markup:
    """A chart: a canvas that is stretched to the width of the page, and labels that are not."""
    canvas = element(
        "svg",
        *(_shape(shape) for shape in chart.shapes),
        *(_stroke(strip.paint, strip.thickness, d=strip.path) for strip in chart.strips),
        *(_curve(curve) for curve in chart.curves),
        width="100%",
        height=chart.height,
        viewBox=f"0 0 {WIDTH} {chart.height}",
        preserveAspectRatio="none",
    )
    solid = {"class_": "rules", "stroke": "#d9dde3", "stroke_width": "1"}
    dashed = {"class_": "rules dashed", "stroke": "#4a5160", "stroke_width": "1", "stroke_dasharray": "4 3"}
    return element(
        "svg",
        element("title", chart.title, id=f"{chart.id}-title"),
        element("desc", chart.description, id=f"{chart.id}-desc"),
        element("g", *_lines(line for line in chart.lines if not line.dashed), **solid),
        canvas if chart.shapes or chart.strips or chart.curves else None,
        *map(_part, chart.parts),
        element("g", *_lines(line for line in chart.lines if line.dashed), **dashed),
        element("g", *map(_label, chart.labels), font_family=FONT, font_size="10"),
        class_="chart",
        role="img",
        aria_labelledby=f"{chart.id}-title {chart.id}-desc",
        width="100%",
        height=chart.height,
    )


def _painted(paint: Paint) -> dict[str, str | None]:
    return {"class_": f"p-{paint.name}", "color": paint.light}


def _shape(shape: Shape) -> Markup:
    opacity = "0.4" if shape.faint else None
    tip = element("title", shape.tip) if shape.tip else None
    return element("path", tip, **_painted(shape.paint), fill="currentColor", fill_opacity=opacity, d=shape.path)


LABELLED_SHARE = 2.5
"""Percent of the width below which a part has no room for a letter."""


def _part(part: Part) -> Markup:
    left, top, width, height = part.box
    ink = f"i-{part.paint.name}" if not part.is_faint else "plain"
    fill = "#1b1f27" if part.is_faint else part.paint.ink_light
    label = element("text", part.label, x="4", y="16", font_size="10", class_=ink, fill=fill)
    return element(
        "svg",
        element("title", part.tip),
        element(
            "rect",
            **_painted(part.paint),
            width="100%",
            height="100%",
            fill="currentColor",
            fill_opacity="0.3" if part.is_faint else None,
        ),
        label if float(width[:-1]) >= LABELLED_SHARE else None,
        class_="part",
        x=left,
        y=top,
        width=width,
        height=height,
    )


def _stroke(paint: Paint, thickness: float, **more: str | None) -> Markup:
    return element("path", **_painted(paint), fill="none", stroke="currentColor", stroke_width=f"{thickness}", **more)


def _curve(curve: Curve) -> Markup:
    return _stroke(
        curve.paint,
        curve.thickness,
        stroke_linecap="round",
        stroke_linejoin="round",
        vector_effect="non-scaling-stroke",
        stroke_opacity="0.4" if curve.faint else None,
        d=curve.path,
    )


def _lines(lines: Iterator[Line]) -> Iterator[Markup]:
    return (element("line", x1=line.x1, y1=line.y1, x2=line.x2, y2=line.y2) for line in lines)


def _label(label: Label) -> Markup:
    ink = label.on.ink_light if label.on else "#5a6271" if label.tone in QUIET else "#1b1f27"
    return element(
        "text",
        label.text,
        x=label.x,
        y=label.y,
        text_anchor=label.anchor.value,
        font_weight="600" if label.tone is Tone.STRONG else None,
        class_=f"i-{label.on.name}" if label.on else label.tone.value,
        fill=ink,
    )


def range_bar(bar: RangeBar) -> Markup:
    """A range on the length of a step."""
    expected = bar.expected and element(
        "line",
        class_=f"p-{SAVING.name}",
        color=SAVING.light,
        stroke="currentColor",
        stroke_width="3",
        x1=bar.expected,
        x2=bar.expected,
        y1="0",
        y2="12",
    )
    return element(
        "svg",
        element("title", bar.title, id=f"{bar.anchor}-range"),
        _rect(TRACK, x=None, width="100%"),
        _rect(SAVING_RANGE, x=bar.start, width=bar.length),
        expected,
        class_="range",
        role="img",
        aria_labelledby=f"{bar.anchor}-range",
        width="100%",
        height="12",
    )


def _rect(paint: Paint, *, x: str | None, width: str) -> Markup:
    return element("rect", **_painted(paint), fill="currentColor", x=x, y="2", width=width, height="8")


def cell_bar(paint: Paint, length: str) -> Markup:
    """A bar below a figure in a table."""
    bar = element("rect", **_painted(paint), fill="currentColor", width=length, height="3")
    return element("svg", joined([bar]), class_="bar", width="100%", height="3", aria_hidden="true")
