"""Memory of a device over time, stacked by class, with the peak marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor, log10

import numpy as np

from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.memory_figures import ClassesOverTime, DeviceMemoryFigures, MemoryClass
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
)
from traceadvisor.rendering.charts.palette import HOST_PAINT, MEMORY_PAINTS
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table
from traceadvisor.rendering.units import count, duration, percent, size

TOP, PLOT_HEIGHT, AXIS_HEIGHT = 32, 220, 20
BOTTOM = TOP + PLOT_HEIGHT
LEFT = 60
"""Units; the scale stands to the left of the plot."""

MOST_TICKS = 5
BYTES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
TIMES = {"s": 10**9, "ms": 10**6, "µs": 10**3, "ns": 1}
TABLE_ROWS = 12
LEAST_BAR_SHARE = 0.01
"""Smaller classes have no bar on a terminal."""

_LAST_TICK = 0.97
_TURNS_AT = 60.0
"""Percentage of the width from which the label of the peak stands to its left."""


def memory_chart(device: DeviceMemoryFigures, names: Mapping[MemoryClass, str], chart_id: str) -> Chart | None:
    """The classes over time, what stays at the bottom; None if nothing was recorded over time."""
    over = device.over_time
    if over is None:
        return None
    position = (over.instant if over.time_ns is None else over.time_ns).astype(np.float64)
    span = float(position[-1] - position[0]) or 1.0
    x = np.round(LEFT + (position - position[0]) / span * (WIDTH - LEFT), 1)
    top = float(over.reserved_bytes.max()) * 1.02 or 1.0
    peak = int(np.searchsorted(over.instant, device.peak_instant))
    at_peak = across(float(x[peak]) / WIDTH)
    heights = (float(_y(np.asarray(at), top)) for at, _ in _ticks(top, BYTES)[0])
    return Chart(
        id=chart_id,
        title="Memory by class",
        caption="Memory in use by tensors. The figures of the classes are those at the peak.",
        description=_sentence(device, names),
        height=BOTTOM + AXIS_HEIGHT,
        shapes=tuple(_layers(over, x, top, names)),
        curves=(Curve(_stairs(x, _y(over.reserved_bytes, top)), HOST_PAINT, 1.25),),
        lines=(
            *(Line(across(LEFT / WIDTH), y, "100%", y) for y in map(number, heights)),
            Line(at_peak, number(TOP - 8), at_peak, number(BOTTOM), dashed=True),
        ),
        labels=tuple(_labels(device, over, float(x[peak]) / WIDTH * 100, (top, span))),
        legend=tuple(_legend(device, over, names)),
        text_bars=tuple(
            LegendEntry(MEMORY_PAINTS[one.kind], names[one.kind], size(one.requested_bytes), share)
            for one in device.classes
            if (share := one.requested_bytes / device.peak_bytes) >= LEAST_BAR_SHARE
        ),
        data=_table(over, names),
    )


def _y(held: Int64 | Float64, top: float) -> Float64:
    found: Float64 = np.round(BOTTOM - PLOT_HEIGHT * np.minimum(held / top, 1.0), 1)
    return found


def _layers(over: ClassesOverTime, x: Float64, top: float, names: Mapping[MemoryClass, str]) -> Iterator[Shape]:
    below = np.zeros(x.size)
    for kind, held in over.requested_bytes.items():
        above = below + held
        if held.any():
            path = f"{_stairs(x, _y(above, top))}{_back(x, _y(above, top), _y(below, top))}z"
            yield Shape(path, MEMORY_PAINTS[kind], names[kind])
        below = above


def _stairs(x: Float64, y: Float64) -> str:
    """SVG path of a level that is constant from each instant to the next."""
    return f"M{number(x[0])} {number(y[0])}{_moves(np.diff(x), np.diff(y))}"


def _back(x: Float64, above: Float64, below: Float64) -> str:
    """The way from the end of one level down to another, and along that to its start."""
    turned = below[::-1]
    return f"v{number(below[-1] - above[-1])}{_moves(np.diff(x[::-1]), np.diff(turned), is_down_first=True)}"


def _moves(across_by: Float64, up_by: Float64, *, is_down_first: bool = False) -> str:
    """Steps along both axes; those that lead nowhere are joined to the next ones."""
    parts: list[str] = []
    waiting = 0.0
    for right, up in zip(across_by.tolist(), up_by.tolist(), strict=True):
        if is_down_first:
            if up:
                parts.append((f"h{number(waiting)}" if waiting else "") + f"v{number(up)}")
                waiting = 0.0
            waiting += right
        else:
            waiting += right
            if up:
                parts.append(f"h{number(waiting)}v{number(up)}")
                waiting = 0.0
    return "".join(parts) + (f"h{number(waiting)}" if waiting else "")


def _labels(
    device: DeviceMemoryFigures, over: ClassesOverTime, percentage: float, scales: tuple[float, float]
) -> Iterator[Label]:
    top, span = scales
    turns = percentage > _TURNS_AT
    anchor, shift = (Anchor.END, -0.6) if turns else (Anchor.START, 0.6)
    yield Label(f"{percentage + shift:.2f}%", "14", f"peak {size(device.peak_bytes)}", anchor, Tone.STRONG)
    reserved = f"reserved by the allocator: at most {size(device.peak_reserved_bytes)}"
    edge, side = (across(LEFT / WIDTH), Anchor.START) if turns else ("100%", Anchor.END)
    yield Label(edge, number(TOP - 3), reserved, side, Tone.QUIET)
    held, unit = _ticks(top, BYTES)
    yield Label("0%", number(TOP - 3), unit, Anchor.START, Tone.QUIET)
    for at, text in held:
        yield Label(
            "0%", number(float(_y(np.asarray(at), top)) + (0 if at == 0 else 4)), text, Anchor.START, Tone.QUIET
        )
    if over.time_ns is not None:
        times, unit = _ticks(span, TIMES)
        for at, text in times:
            share = LEFT / WIDTH + at / span * (1 - LEFT / WIDTH)
            anchor = Anchor.END if share > _LAST_TICK else Anchor.MIDDLE
            yield Label(across(share), number(BOTTOM + 15), f"{text} {unit}" if at else text, anchor, Tone.QUIET)
    else:
        words = f"{count(device.instants - 1)} events; their times were not recorded"
        yield Label("100%", number(BOTTOM + 15), words, Anchor.END, Tone.QUIET)


def _ticks(top: float, units: Mapping[str, int]) -> tuple[tuple[tuple[float, str], ...], str]:
    """Round values from 0 to at most the top, each with its figure in the unit that follows."""
    unit = next(name for name, one in units.items() if top >= one or one == 1)
    least = top / units[unit] / MOST_TICKS
    power = 10 ** floor(log10(least))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= least)
    values = (step * place for place in range(int(top / units[unit] / step) + 1))
    return tuple((value * units[unit], f"{value:g}") for value in values), unit


def _legend(
    device: DeviceMemoryFigures, over: ClassesOverTime, names: Mapping[MemoryClass, str]
) -> Iterator[LegendEntry]:
    at_peak = {one.kind: one.requested_bytes for one in device.classes}
    for kind in over.requested_bytes:
        held = at_peak.get(kind, 0)
        share = held / device.peak_bytes
        yield LegendEntry(MEMORY_PAINTS[kind], names[kind], f"{size(held)} ({percent(share)})")


def _sentence(device: DeviceMemoryFigures, names: Mapping[MemoryClass, str]) -> str:
    parts = ", ".join(
        f"{names[one.kind]} {size(one.requested_bytes)}"
        for one in device.classes
        if one.kind is not MemoryClass.OVERHEAD
    )
    return f"Memory in use over the recording, stacked by class. At the peak of {size(device.peak_bytes)}: {parts}."


def _table(over: ClassesOverTime, names: Mapping[MemoryClass, str]) -> Table:
    """The fullest instant of each twelfth of the chart, and the end."""
    position = over.instant if over.time_ns is None else over.time_ns
    total = np.sum(list(over.requested_bytes.values()), axis=0)
    edges = np.searchsorted(position, np.linspace(position[0], position[-1], TABLE_ROWS + 1)[1:-1])
    chosen = [int(part[np.argmax(total[part])]) for part in np.split(np.arange(position.size), edges) if part.size]
    end = position.size - 1

    def at(row: int) -> str:
        return count(int(position[row])) if over.time_ns is None else duration(float(position[row]))

    first = Column("Event" if over.time_ns is None else "At")
    columns = (first, Column("In use"), Column("Reserved"), *(Column(names[kind]) for kind in over.requested_bytes))
    rows = tuple(
        (
            Cell(f"{at(row)}{', the end' if row == end else ''}"),
            Cell(size(float(total[row]))),
            Cell(size(float(over.reserved_bytes[row]))),
            *(Cell(size(float(held[row]))) for held in over.requested_bytes.values()),
        )
        for row in dict.fromkeys((*chosen, end))
    )
    return Table("Memory over time by class", columns, rows, layout=Layout.COMPARISON)
