"""The timeline of one typical step: categories, CPU threads, and GPU streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from traceadvisor.model.arrays import Float64, Int64
from traceadvisor.model.breakdown import Category
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.timeline import Activity, Lane, Timeline
from traceadvisor.rendering.charts.drawing import (
    WIDTH,
    Anchor,
    Chart,
    Label,
    LegendEntry,
    Strip,
    Tone,
    number,
    runs_path,
)
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.charts.step_bar import ticks, time_axis
from traceadvisor.rendering.document.table import Cell, Table, titled
from traceadvisor.rendering.units import duration, number_of, percent
from traceadvisor.rendering.words import ACTIVITY, CATEGORY
from traceadvisor.text.cleaning import clipped

LANE_HEIGHT = 40
TITLE_HEIGHT = 15
STRIP_HEIGHT = 16
AXIS_HEIGHT = 22
LONGEST_TITLE = 48
"""Characters of a lane title that fit on a phone."""

CATEGORY_LANE = "category"

MOST_LANES = 8
"""Lanes per kind; the busiest are drawn, the others only counted."""


def timeline(
    drawn: Timeline | None, chart_id: str, *, mean_ns: float | None = None, scale_ns: int | None = None
) -> Chart | None:
    """A recorded step as lanes over time; None without a timeline.

    ``mean_ns``: the mean of the typical steps, of which this is one; None to leave it out. ``scale_ns``: time that the
    width stands for, at least the step; None for the step.
    """
    if drawn is None or drawn.end_ns <= drawn.start_ns:
        return None
    lanes = _lanes(drawn)
    seen = [shares(lane.spans, drawn.start_ns, drawn.end_ns) for lane in lanes]
    height = len(lanes) * LANE_HEIGHT
    scale_ns = scale_ns or drawn.end_ns - drawn.start_ns
    return Chart(
        id=chart_id,
        title=f"Step {drawn.step_index} over time",
        caption=(sentence := _sentence(drawn, lanes, mean_ns)),
        description=sentence,
        height=height + AXIS_HEIGHT,
        strips=tuple(_strips(drawn, lanes, scale_ns)),
        lines=tuple(ticks(0, height + 5)),
        labels=(*_titles(lanes), *time_axis(scale_ns, height + 18)),
        legend=tuple(_legend(lanes, seen[0])),
        data=_table(drawn, lanes, seen),
    )


def words_for(kind: Category | Activity) -> str:
    """The label of a colour in the timeline."""
    return CATEGORY[kind] if isinstance(kind, Category) else ACTIVITY[kind]


def _lanes(drawn: Timeline) -> tuple[Lane, ...]:
    """The lanes to draw, cut to the step; the first is that of the categories."""
    counted = Lane(CATEGORY_LANE, drawn.categories.spans)
    host, streams = ([_cut(lane, drawn) for lane in lanes] for lanes in (drawn.host, drawn.streams))
    return (_cut(counted, drawn), *_busiest(host, drawn), *_busiest(streams, drawn))


def _cut(lane: Lane, drawn: Timeline) -> Lane:
    return Lane(lane.title, {kind: spans.clip(drawn.start_ns, drawn.end_ns) for kind, spans in lane.spans.items()})


def _busiest(lanes: Sequence[Lane], drawn: Timeline) -> tuple[Lane, ...]:
    """The busiest lanes in their original order, without lanes too empty to see."""
    seen_ns = (drawn.end_ns - drawn.start_ns) / WIDTH / 2
    busy_ns = [SpanSet.union_all(lane.spans.values()).total_ns for lane in lanes]
    busy = [place for place, ns in enumerate(busy_ns) if ns >= seen_ns]
    busiest = sorted(busy, key=lambda place: -busy_ns[place])[:MOST_LANES]
    return tuple(lanes[place] for place in sorted(busiest))


def _strips(drawn: Timeline, lanes: Sequence[Lane], scale_ns: int) -> Iterator[Strip]:
    for row, lane in enumerate(lanes):
        y = row * LANE_HEIGHT + TITLE_HEIGHT + 4 + STRIP_HEIGHT / 2
        layers = runs_by_layer(tuple(lane.spans.values()), drawn.start_ns, drawn.start_ns + scale_ns, WIDTH)
        for kind, runs in zip(lane.spans, layers, strict=True):
            if runs:
                yield Strip(runs_path(runs, y), STRIP_HEIGHT, PAINTS[kind])


def _titles(lanes: Sequence[Lane]) -> Iterator[Label]:
    for row, lane in enumerate(lanes):
        tone = Tone.PLAIN if row else Tone.STRONG
        yield Label(
            "0.6%", number(row * LANE_HEIGHT + TITLE_HEIGHT - 1), clipped(lane.title, LONGEST_TITLE), Anchor.START, tone
        )


def _legend(lanes: Sequence[Lane], of_step: Mapping[Category | Activity, float]) -> Iterator[LegendEntry]:
    """All visible kinds; categories have their share of the step."""
    seen = {kind for lane in lanes for kind, spans in lane.spans.items() if spans}
    for kind, paint in PAINTS.items():
        if kind in seen:
            yield LegendEntry(paint, words_for(kind), percent(of_step[kind]) if kind in of_step else "")


def _sentence(drawn: Timeline, lanes: Sequence[Lane], mean_ns: float | None) -> str:
    left_out = len(drawn.host) + len(drawn.streams) + 1 - len(lanes)
    more = f" Not drawn: {number_of(left_out, 'less busy lane')}." if left_out else ""
    streams = ", then GPU streams" if drawn.streams else ""
    among = "" if mean_ns is None else f"; typical steps take {duration(mean_ns)} on average"
    return (
        f"A step of {duration(drawn.end_ns - drawn.start_ns)}{among}. "
        f"From top to bottom: the category of each instant, then CPU threads{streams}.{more}"
    )


def _table(drawn: Timeline, lanes: Sequence[Lane], seen: Sequence[Mapping[Category | Activity, float]]) -> Table:
    columns = titled("Lane", "Activity", "Time", "Share of the step", words=("Activity",))
    rows = [
        (Cell(lane.title), Cell(words_for(kind)), Cell(duration(share * length)), Cell(percent(share)))
        for lane, of_step in zip(lanes, seen, strict=True)
        for kind, share in of_step.items()
        if share
        for length in (drawn.end_ns - drawn.start_ns,)
    ]
    return Table("Time by lane", columns, tuple(rows))


K = TypeVar("K")

Run = tuple[int, int]
"""First slot, and the slot after the last."""


def runs_by_layer(layers: Sequence[SpanSet], start_ns: int, end_ns: int, slots: int) -> tuple[tuple[Run, ...], ...]:
    """The runs of slots in which each layer is visible; later layers cover earlier ones.

    Drawing every span at least one slot wide would make a stream of tiny kernels look
    fully busy. So each slot shows one layer, and the rounding error is carried to the
    next slot (error diffusion). The drawn length of each layer over any stretch equals
    its time to within one slot.
    """
    if end_ns <= start_ns:
        return tuple(() for _ in layers)
    edges = start_ns + np.linspace(0, end_ns - start_ns, slots + 1)
    visible = _uncovered(layers)
    seen = np.array([_covered(spans, edges) * slots / (end_ns - start_ns) for spans in visible])
    chosen = _diffused(seen.reshape(len(layers), slots))
    return tuple(_runs(chosen == layer) if spans else () for layer, spans in enumerate(visible))


def shares(layers: Mapping[K, SpanSet], start_ns: int, end_ns: int) -> dict[K, float]:
    """The visible share of each layer between start and end."""
    seen = _uncovered(list(layers.values()))
    length = max(1, end_ns - start_ns)
    return {key: spans.clip(start_ns, end_ns).total_ns / length for key, spans in zip(layers, seen, strict=True)}


def _uncovered(layers: Sequence[SpanSet]) -> list[SpanSet]:
    """Each layer without the parts that later layers cover."""
    above = SpanSet.empty()
    seen: list[SpanSet] = []
    for spans in reversed(layers):
        seen.append(spans - above)
        above = above | spans
    return seen[::-1]


def _covered(spans: SpanSet, edges: Float64) -> Float64:
    """The covered time between each two edges, one element fewer."""
    if not spans:
        return np.zeros(edges.size - 1)
    before = np.concatenate(([0.0], np.cumsum(spans.ends_ns - spans.starts_ns)))
    opened = np.searchsorted(spans.starts_ns, edges, side="right")
    last = np.maximum(opened - 1, 0)
    inside = np.where(opened > 0, np.minimum(edges - spans.starts_ns[last], np.diff(before)[last]), 0.0)
    covered_until: Float64 = before[last] + inside
    return np.diff(covered_until)


def _diffused(seen: Float64) -> Int64:
    """The layer of each slot, or the number of layers for an empty slot; shape ``(slots,)``."""
    of_slots = np.vstack([seen, np.maximum(0.0, 1.0 - seen.sum(axis=0))]).T
    slots, layers = np.nonzero(of_slots)
    rows, parts = layers.tolist(), of_slots[slots, layers].tolist()  # numpy takes ten times as long for so few
    owed = [0.0] * of_slots.shape[1]
    chosen: list[int] = []
    counts = np.bincount(slots, minlength=len(of_slots))
    places = counts.cumsum() - counts
    is_full = (counts == 1) & (of_slots[slots, layers][places] == 1.0)
    goes_on = is_full[1:] & is_full[:-1] & (layers[places[1:]] == layers[places[:-1]])
    begins = np.concatenate(([True], ~goes_on))  # a slot that goes on as the one before owes nothing more
    for count, place in zip(counts[begins].tolist(), places[begins].tolist(), strict=True):
        if count == 1:  # most slots
            pick = rows[place]
            owed[pick] += parts[place]
        else:
            pick, most = 0, -np.inf
            for at in range(place, place + count):
                layer = rows[at]
                owed[layer] = now = owed[layer] + parts[at]
                if now > most and parts[at] > 0:
                    pick, most = layer, now
        owed[pick] -= 1.0
        chosen.append(pick)
    by_run: Int64 = np.array(chosen, np.int64)[begins.cumsum() - 1]
    return by_run


def _runs(marked: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[Run, ...]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], marked, [False])).astype(np.int8)))
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
