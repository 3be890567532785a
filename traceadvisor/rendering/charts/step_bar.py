"""The typical step as a stacked bar, for one recording or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, islice

from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.report import Recording
from traceadvisor.rendering.charts.drawing import (
    WIDTH,
    Anchor,
    Chart,
    Label,
    LegendEntry,
    Line,
    Shape,
    Tone,
    across,
    number,
    rectangle,
)
from traceadvisor.rendering.charts.palette import PAINTS
from traceadvisor.rendering.document.table import Cell, Column, Table, cells, titled
from traceadvisor.rendering.headline import shown_step
from traceadvisor.rendering.savings import SCALED_SHARE
from traceadvisor.rendering.units import NOT_MEASURED, duration, milliseconds, percent
from traceadvisor.rendering.words import CATEGORY
from traceadvisor.text.cleaning import clipped_inside

BAR_HEIGHT = 44
AXIS_HEIGHT = 22
ROW_HEIGHT = 52
MOST_ROWS = 32
ROW_BAR_HEIGHT = 24
ROW_BAR_TOP = 20
GAP = 1.5
"""Gap between parts, in units; thin parts have none."""

LONGEST_ID = 44
"""Characters of a recording's name that fit on most phones."""

SCALES = "Each bar is one whole step: the step times differ too much for one scale."
CHOSEN = "Shown are the diagnosed recording and those with the shortest and the longest step."

MOST_TIMES = 20
"""Highest ratio of the longest to the shortest step on one scale."""

LABELLED_SHARE = 0.12
"""Narrower parts have no room for their percentage on a phone."""

_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


def step_bar(recording: Recording, chart_id: str) -> Chart | None:
    """The typical step by category; None without a measured step."""
    mean = recording.breakdown
    if mean is None or not mean.duration_ns:
        return None
    parts = list(_parts(mean, mean.duration_ns))
    title = f"{shown_step(recording).capitalize()} by category"
    if found := recording.distortion:
        title = f"{title}: shares of the recorded step ({duration(mean.duration_ns)})"
        if is_changed(recording):
            doubt = "; the shares are rough" if found.is_strong else ""
            title = f"{title}; an undisturbed one takes {duration(found.undisturbed_step_ns)}{doubt}"
    # Times below the bar would be read beside the undisturbed step's.
    axis = time_axis(mean.duration_ns, BAR_HEIGHT + 18) if found is None else _axis("{:.0%}".format, BAR_HEIGHT + 18)
    return Chart(
        id=chart_id,
        title=title,
        description=_sentence(recording, mean),
        height=BAR_HEIGHT + AXIS_HEIGHT,
        shapes=tuple(_shapes(mean, parts, 0, BAR_HEIGHT)),
        lines=tuple(ticks(BAR_HEIGHT, BAR_HEIGHT + 5)),
        labels=(*_labels(mean, parts, BAR_HEIGHT / 2 + 4), *axis),
        legend=legend(mean),
        data=_table(mean, title),
    )


def is_changed(recording: Recording) -> bool:
    """Whether the title of the chart says that recorded steps took longer, or less time, than undisturbed ones."""
    found = recording.distortion
    return recording.breakdown is not None and found is not None and abs(found.ratio - 1) > SCALED_SHARE


def comparison_bars(recordings: Sequence[Recording], chart_id: str, *, more: int = 0) -> Chart | None:
    """The typical steps of several recordings; None if fewer than two were measured.

    All bars share one time scale. If the steps differ too much in length, each bar fills the width.

    ``more``: recordings that are not drawn: then these are the diagnosed one, the shortest and the longest.
    """
    measured = ((recording, mean) for recording in recordings if (mean := recording.breakdown) and mean.duration_ns)
    means = list(islice(measured, MOST_ROWS))
    if len(means) < 2:
        return None
    longest = max(mean.duration_ns for _, mean in means)
    on_one_scale = longest <= MOST_TIMES * min(mean.duration_ns for _, mean in means)
    names = told_apart([recording.id for recording, _ in means])
    shapes: list[Shape] = []
    labels: list[Label] = []
    for row, (_, mean) in enumerate(means):
        top = row * ROW_HEIGHT
        parts = list(_parts(mean, longest if on_one_scale else mean.duration_ns))
        shapes += _shapes(mean, parts, top + ROW_BAR_TOP, ROW_BAR_HEIGHT)
        title = f"{duration(mean.duration_ns)} · {clipped_inside(names[row], LONGEST_ID)}"
        labels.append(Label("0%", number(top + 13), title))
        labels += _labels(mean, parts, top + ROW_BAR_TOP + ROW_BAR_HEIGHT / 2 + 4)
    used = [category for category in CATEGORY if any(mean.parts_ns.get(category) for _, mean in means)]
    height = len(means) * ROW_HEIGHT
    return Chart(
        id=chart_id,
        title="Typical steps compared",
        caption=" ".join(filter(None, (None if on_one_scale else SCALES, CHOSEN if more else None))) or None,
        description=" ".join(f"{recording.id}: {_sentence(recording, mean)}" for recording, mean in means),
        height=height + AXIS_HEIGHT,
        shapes=tuple(shapes),
        lines=tuple(ticks(height, height + 5)),
        labels=(*labels, *(time_axis(longest, height + 18) if on_one_scale else _axis("{:.0%}".format, height + 18))),
        legend=tuple(LegendEntry(PAINTS[category], CATEGORY[category], "") for category in used),
        data=_comparison_table(means, used),
    )


def told_apart(names: Sequence[str]) -> list[str]:
    """Short names: paths without their common parts, if all have the same number of parts."""
    split = [name.split("/") for name in names]
    if len({len(parts) for parts in split}) != 1:
        return list(names)
    differs = [len(set(column)) > 1 for column in zip(*split, strict=True)]
    short = ["/".join(compress(parts, differs)) for parts in split]
    return short if all(short) else list(names)


def legend(mean: MeanBreakdown) -> tuple[LegendEntry, ...]:
    """The categories that take time, largest first; unmeasured categories are last."""
    taken = sorted(mean.parts_ns.items(), key=lambda part: -(part[1] or 0.0))
    return tuple(
        LegendEntry(
            PAINTS[category],
            CATEGORY[category],
            NOT_MEASURED if ns is None else percent(mean.share(category)),
            mean.share(category),
        )
        for category, ns in taken
        if ns is None or ns > 0
    )


def time_axis(length_ns: float, y: float) -> Iterator[Label]:
    """Time labels below a bar, from 0 to its length."""
    return _axis(lambda tick: duration(length_ns * tick) if tick else "0", y)


def _axis(words: Callable[[float], str], y: float) -> Iterator[Label]:
    for tick in _TICKS:
        tone = Tone.MINOR if tick in (0.25, 0.75) else Tone.QUIET
        anchor = Anchor.START if tick == 0 else Anchor.END if tick == 1 else Anchor.MIDDLE
        yield Label(across(tick), number(y), words(tick), anchor, tone)


def ticks(top: float, bottom: float) -> Iterator[Line]:
    """Lines at each quarter of the width."""
    for tick in _TICKS:
        yield Line(across(tick), number(top), across(tick), number(bottom))


def _parts(mean: MeanBreakdown, scale_ns: float) -> Iterator[tuple[Category, float, float]]:
    """Each category with its start and length as shares of the scale."""
    at = 0.0
    for category, ns in mean.parts_ns.items():
        if ns:
            yield category, at, ns / scale_ns
            at += ns / scale_ns


def _shapes(
    mean: MeanBreakdown, parts: Iterable[tuple[Category, float, float]], top: float, height: float
) -> Iterator[Shape]:
    for category, at, length in parts:
        width = length * WIDTH
        path = rectangle(at * WIDTH, top, width - GAP if width > 4 * GAP else max(width, 0.5), height)
        tip = f"{CATEGORY[category]}: {duration(mean.parts_ns[category])}, {percent(mean.share(category))}"
        yield Shape(path, PAINTS[category], tip)


def _labels(mean: MeanBreakdown, parts: Iterable[tuple[Category, float, float]], y: float) -> Iterator[Label]:
    for category, at, length in parts:
        if length >= LABELLED_SHARE:
            share = mean.share(category)
            middle = across(at + length / 2)
            yield Label(middle, number(y), percent(share), Anchor.MIDDLE, Tone.STRONG, PAINTS[category])


def _sentence(recording: Recording, mean: MeanBreakdown) -> str:
    taken = sorted(((ns, category) for category, ns in mean.parts_ns.items() if ns), key=lambda part: -part[0])
    parts = ", ".join(f"{CATEGORY[category]} {percent(mean.share(category))}" for _, category in taken)
    return f"The {shown_step(recording)} takes {duration(mean.duration_ns)}: {parts}."


def _table(mean: MeanBreakdown, title: str) -> Table:
    rows = tuple(
        cells(CATEGORY[category], milliseconds(ns), percent(mean.share(category)))
        for category, ns in mean.parts_ns.items()
    )
    total = cells("Step", milliseconds(mean.duration_ns), percent(1.0))
    return Table(title, titled("Category", "ms", "Share"), (*rows, total))


def _comparison_table(means: Sequence[tuple[Recording, MeanBreakdown]], used: Sequence[Category]) -> Table:
    columns = (Column("Category", numeric=False), *(Column(f"{recording.id}, ms") for recording, _ in means))
    rows = [
        (Cell(CATEGORY[category]), *(Cell(milliseconds(mean.parts_ns.get(category))) for _, mean in means))
        for category in used
    ]
    return Table("Mean steps by category", columns, tuple(rows))
