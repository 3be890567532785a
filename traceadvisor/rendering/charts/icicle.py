"""The icicle of a step: its time by category, and each category by operator, module and line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from traceadvisor.model.report import Recording
from traceadvisor.rendering.charts.drawing import Chart, Label, LegendEntry, Part, across, number
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.origins import LEVELS, OriginPart, largest_first, origin_parts, origins_table
from traceadvisor.rendering.units import duration, percent
from traceadvisor.rendering.words import CATEGORY

TITLE_HEIGHT, PART_HEIGHT, ROW_HEIGHT = 17, 24, 48
LEAST_SHARE = 0.004
"""Smaller parts are not drawn; the table has them."""

ROWS = ("Category", *(title for titles in LEVELS.values() for title in titles))

Place = tuple[str, str, float, float]
"""The title of a row and a name, with its start and length as shares of the step."""


def icicle(recording: Recording, chart_id: str) -> Chart | None:
    """The origins of the time of the step, with the table of all parts; None without origins."""
    origins = largest_first(recording)
    if not origins:
        return None
    whole_ns, steps = sum(one.total_ns for one in recording.origins.values()), origins[0][1].step_count
    drawn: list[tuple[Place, LegendEntry]] = []
    at = 0.0
    for category, one in origins:
        share = one.total_ns / whole_ns
        entry = LegendEntry(PAINTS[category], CATEGORY[category], percent(share), share)
        drawn.append((("Category", entry.label, at, share), entry))
        for _, parts in groupby(origin_parts(one), key=lambda part: part.view):
            drawn += [(each, entry) for each in _row_parts(list(parts), at, whole_ns)]
        at += share
    titles = [title for title in ROWS if any(each[0] == title for each, _ in drawn)]
    tops = {title: place * ROW_HEIGHT for place, title in enumerate(titles)}
    legend = tuple(dict.fromkeys(entry for _, entry in drawn))
    return Chart(
        id=chart_id,
        title=f"One step, {duration(whole_ns / steps)}, divided in {len(titles)} ways",
        description=f"{', '.join(f'{entry.label} {entry.figure}' for entry in legend)}. The table has all parts.",
        height=len(titles) * ROW_HEIGHT,
        labels=tuple(Label("0%", number(top + TITLE_HEIGHT - 5), title) for title, top in tops.items()),
        legend=legend,
        data=origins_table(recording),
        parts=tuple(
            Part(
                (across(start), number(tops[title] + TITLE_HEIGHT), across(length), number(PART_HEIGHT)),
                entry.paint,
                name,
                f"{name}: {duration(length * whole_ns / steps)}, {percent(length)}",
                is_faint=title != "Category",
            )
            for (title, name, start, length), entry in drawn
            if length >= LEAST_SHARE
        ),
    )


def _row_parts(parts: list[OriginPart], at: float, whole_ns: int, level: int = 0) -> Iterator[Place]:
    """Parts of one view beside each other, the largest first; those that begin with the same names stay together."""
    titles = LEVELS[parts[0].view]
    names = dict.fromkeys(part.path[level] for part in parts)
    inside = {name: [part for part in parts if part.path[level] == name] for name in names}
    for name in sorted(names, key=lambda name: -_total_ns(inside[name])):
        length = _total_ns(inside[name]) / whole_ns
        if name:
            yield titles[level], name, at, length
        deeper = [part for part in inside[name] if len(part.path) > level + 1]
        if deeper:
            yield from _row_parts(deeper, at, whole_ns, level + 1)
        at += length


def _total_ns(parts: Iterable[OriginPart]) -> int:
    return sum(part.row.total_ns for part in parts)
