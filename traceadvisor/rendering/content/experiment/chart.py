"""Charts of samples per second: the curve of an axis with its ceilings, and a bar for each setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceadvisor.model.experiment import AxisResult, CurvePoint, MeasuredArm, MeasuredRatio, Section
from traceadvisor.rendering.charts.drawing import (
    WIDTH,
    Anchor,
    Chart,
    Curve,
    Label,
    LegendEntry,
    Line,
    Shape,
    Tone,
    across,
    number,
    points_path,
    rectangle,
)
from traceadvisor.rendering.charts.palette import DEVICE_PAINTS, HOST_PAINT, LOADER_TIME, SAVING, SAVING_RANGE, Paint
from traceadvisor.rendering.content.experiment.words import AXES, change, interval, rate_words, title
from traceadvisor.rendering.document.table import Column, Table, cells, titled

TOP, PLOT_HEIGHT, AXIS_HEIGHT = 32, 180, 24
BOTTOM = TOP + PLOT_HEIGHT
MARGIN = 0.04
LINE, DOT = 2.0, 7.0
ROOM_ABOVE = 1.08

HIGHEST_LOADER = 2.0
"""Points of a loader above this multiple of the other curves are left out, so that these stay readable."""


def axis_chart(axis: AxisResult, anchor: str) -> Chart | None:
    """The curve of an axis; None with fewer than two values. ``anchor``: of its part of the page."""
    values = sorted({point.value for point in axis.loop})
    if len(values) < 2:
        return None
    model = axis.model
    if len(model) == 1:
        model = tuple(CurvePoint(value=value, samples_per_s=model[0].samples_per_s) for value in values)
    top = max(point.samples_per_s for point in (*axis.loop, *model)) * ROOM_ABOVE
    shown = [one.samples_per_s for one in axis.loader if one.samples_per_s < top * HIGHEST_LOADER]
    top = max([top, *(rate * ROOM_ABOVE for rate in shown)])
    words = AXES.get(axis.name, axis.name)
    lines = (
        _Drawn("Training loop", DEVICE_PAINTS[0], axis.loop),
        _Drawn("Model alone (cached batches)", HOST_PAINT, model),
        _Drawn("Loader alone", LOADER_TIME, axis.loader),
    )
    drawn = [line for line in lines if line.points]
    return Chart(
        id=f"{anchor}-curve",
        title=f"Samples per second by {words}",
        caption=None,
        description=_description(axis, drawn),
        height=BOTTOM + AXIS_HEIGHT,
        lines=tuple(_rules(axis, values)),
        labels=tuple(_labels(axis, values, top)),
        legend=tuple(LegendEntry(line.paint, line.name, line.above(top)) for line in drawn),
        curves=tuple(curve for line in drawn for curve in line.curves(values, top)),
        data=_table(axis, values, drawn),
    )


class _Drawn:
    """One line."""

    def __init__(self, name: str, paint: Paint, points: Sequence[CurvePoint]) -> None:
        self.name, self.paint, self.points = name, paint, points

    def curves(self, values: Sequence[int], top: float) -> Iterator[Curve]:
        places = [
            (_x(values, point.value) * WIDTH, _y(point.samples_per_s, top))
            for point in self.points
            if point.value in values and point.samples_per_s <= top
        ]
        if not places:
            return
        yield Curve(points_path(places), self.paint, LINE)
        yield Curve("".join(points_path([place]) for place in places), self.paint, DOT)

    def above(self, top: float) -> str:
        """The points that the chart does not show."""
        hidden = [point.samples_per_s for point in self.points if point.samples_per_s > top]
        return f"above the chart: up to {max(hidden):,.0f}" if hidden else ""

    def at(self, value: int) -> float | None:
        return next((point.samples_per_s for point in self.points if point.value == value), None)


def _x(values: Sequence[int], value: int) -> float:
    """Place of a value across: all values have the same distance."""
    return MARGIN + (1 - 2 * MARGIN) * values.index(value) / (len(values) - 1)


def _y(rate: float, top: float) -> float:
    return BOTTOM - PLOT_HEIGHT * min(max(rate / top, 0.0), 1.0)


def _rules(axis: AxisResult, values: Sequence[int]) -> Iterator[Line]:
    for share in (0.0, 0.5, 1.0):
        y = number(BOTTOM - PLOT_HEIGHT * share)
        yield Line("0%", y, "100%", y)
    if axis.knee in values and axis.knee is not None:
        x = across(_x(values, axis.knee))
        yield Line(x, str(TOP), x, str(BOTTOM), dashed=True)


def _labels(axis: AxisResult, values: Sequence[int], top: float) -> Iterator[Label]:
    yield Label("0%", "11", f"up to {top:,.0f} samples per second", Anchor.START, Tone.QUIET)
    if axis.knee in values and axis.knee is not None:
        yield Label("100%", "11", f"- - smallest value within 3% of the best: {axis.knee:,}", Anchor.END, Tone.QUIET)
    for value in values:
        tone = Tone.STRONG if value == axis.knee else Tone.QUIET
        text = f"{value:,} (own)" if value == axis.own else f"{value:,}"
        yield Label(across(_x(values, value)), str(BOTTOM + 15), text, Anchor.MIDDLE, tone)


def _description(axis: AxisResult, drawn: Sequence[_Drawn]) -> str:
    parts = []
    for line in drawn:
        rates = [point.samples_per_s for point in line.points]
        parts.append(f"{line.name.lower()} from {min(rates):,.0f} to {max(rates):,.0f}")
    knee = f" The knee is at {axis.knee:,}." if axis.knee is not None else ""
    return f"Samples per second by {title(axis.name).lower()}: {'; '.join(parts)}.{knee}"


def _table(axis: AxisResult, values: Sequence[int], drawn: Sequence[_Drawn]) -> Table:
    return Table(
        caption=f"Samples per second by {AXES.get(axis.name, axis.name)}",
        columns=(Column(title(axis.name)), *(Column(line.name) for line in drawn)),
        rows=tuple(
            cells(f"{value:,}", *("" if (rate := line.at(value)) is None else f"{rate:,.0f}" for line in drawn))
            for value in values
        ),
    )


MOST_BARS = 12
ROW_HEIGHT, BAR_TOP, BAR_HEIGHT = 40, 18, 12


def arms_chart(section: Section, anchor: str) -> Chart | None:
    """A bar for each setting, the script as it is first, with the interval; None without two bars."""
    own_rate = section.base_samples_per_s
    found = [(arm, arm.measured) for arm in section.arms if arm.measured and not arm.problem][:MOST_BARS]
    if not found or not own_rate:
        return None
    top = ROOM_ABOVE * max(own_rate, *(own_rate / one.ratio for _, one in found))
    rows = ((own_rate, "as it is", None), *((own_rate / one.ratio, _bar_name(arm, one), one) for arm, one in found))
    shapes: list[Shape] = []
    labels: list[Label] = []
    for place, (rate, name, one) in enumerate(rows):
        y = place * ROW_HEIGHT
        shapes.append(
            Shape(rectangle(0, y + BAR_TOP, rate / top * WIDTH, BAR_HEIGHT), DEVICE_PAINTS[0] if one else SAVING_RANGE)
        )
        if one and interval(one):
            low, high = (min(own_rate / end / top, 1.0) for end in (one.high, one.low))
            shapes.append(Shape(rectangle(low * WIDTH, y + BAR_TOP + 4, (high - low) * WIDTH, 4), SAVING))
        labels += (
            Label("0%", number(y + 13), name),
            Label("100%", number(y + 13), f"{rate_words(rate)} samples per second", Anchor.END, Tone.QUIET),
        )
    return Chart(
        id=f"{anchor}-bars",
        title="Samples per second with each setting",
        caption="Dark: 99% interval.",
        description="; ".join(f"{name}: {rate_words(rate)}" for rate, name, _ in rows),
        height=len(rows) * ROW_HEIGHT,
        lines=(),
        labels=tuple(labels),
        legend=(),
        data=Table(
            "Samples per second",
            titled("Setting", "Samples per second"),
            tuple(cells(name, rate_words(rate)) for rate, name, _ in rows),
        ),
        shapes=tuple(shapes),
    )


def _bar_name(arm: MeasuredArm, found: MeasuredRatio) -> str:
    return f"{arm.name} ({change(found.ratio)})"
