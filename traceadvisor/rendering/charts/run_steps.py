"""Every step of a run, recorded or not, by step time and profiler state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median

from traceadvisor.frozen import frozen
from traceadvisor.model.run import StepState, TimedStep
from traceadvisor.rendering.charts.clock import RunClock, shading, shading_label
from traceadvisor.rendering.charts.drawing import (
    Chart,
    Curve,
    LegendEntry,
    Shape,
    levels,
    points_path,
    rectangle,
    side_labels,
)
from traceadvisor.rendering.charts.palette import LOADER_TIME, STEP_PAINTS
from traceadvisor.rendering.charts.step_bar import time_axis
from traceadvisor.rendering.charts.trend import MOST_POINTS
from traceadvisor.rendering.document.table import Cell, Table, titled
from traceadvisor.rendering.units import count, duration, number_of
from traceadvisor.rendering.words import STEP_STATE
from traceadvisor.text.ranges import between

TOP = 32
PLOT_HEIGHT = 140
BOTTOM = TOP + PLOT_HEIGHT
AXIS_HEIGHT = 20
DOT = 5.0
LONG_IN_MEDIANS = 2.0
"""The chart ends at this multiple of the median, so that a few long steps do not compress the others."""

LONG_SHARE = 0.05
"""It ends higher if more than this share of the steps is longer."""

NARROWEST = 0.6
"""Least width of a step's data loader time, in units."""

MOST_ROWS = 40
"""Rows in the data table of the chart."""


@frozen
class _Bunch:
    """Neighbouring steps drawn as one dot."""

    start_ns: int
    end_ns: int
    median_ns: float
    least_ns: int
    longest_ns: int
    loader_ns: float


def run_steps_chart(
    steps: Sequence[TimedStep], undisturbed_ns: float | None, clock: RunClock, chart_id: str
) -> Chart | None:
    """Step times as dots over the run, with the time in the data loader below; None without steps."""
    if not steps:
        return None
    top_ns = _top(steps)
    median_words = f"- - undisturbed median {duration(undisturbed_ns)}" if undisturbed_ns else None
    return Chart(
        id=chart_id,
        title="Step time over the run",
        caption=_sentence(steps, top_ns),
        description=_sentence(steps, top_ns),
        height=BOTTOM + AXIS_HEIGHT,
        shapes=(*shading(clock, TOP, PLOT_HEIGHT), *_loading(steps, clock, top_ns)),
        lines=tuple(levels((TOP, BOTTOM), _y(undisturbed_ns, top_ns) if undisturbed_ns else None)),
        labels=(
            *side_labels(f"up to {duration(top_ns)}", median_words),
            *shading_label(clock, 25),
            *time_axis(clock.length_ns, BOTTOM + 15),
        ),
        legend=tuple(_legend(steps)),
        curves=tuple(_dots(steps, clock, top_ns)),
        data=_table(steps),
    )


def _top(steps: Sequence[TimedStep]) -> float:
    """The step time at the top of the chart; never 0."""
    ordered = sorted(step.duration_ns for step in steps)
    usual_ns = LONG_IN_MEDIANS * float(median(ordered))
    common_ns = ordered[int((len(ordered) - 1) * (1 - LONG_SHARE))] if len(ordered) > 1 else ordered[-1]
    return float(min(ordered[-1], max(usual_ns, common_ns))) or 1.0


def _y(ns: float, top_ns: float) -> float:
    return BOTTOM - PLOT_HEIGHT * min(max(ns / top_ns, 0.0), 1.0)


def _bunches(steps: Sequence[TimedStep]) -> Iterator[_Bunch]:
    """Group neighbouring steps; the run's first step stays alone.

    If the states alternate too often, steps with other states in between are grouped too.
    """
    runs = [[step for _, step in run] for _, run in groupby(enumerate(steps), key=lambda one: one[1].index - one[0])]
    first = [steps[:1]] if steps and steps[0].index == 0 else []
    later = [runs[0][1:], *runs[1:]] if first else runs
    if len(later) > MOST_POINTS:
        later = [[step for run in later for step in run]]
    size = -(-len(steps) // MOST_POINTS)
    for run in (*first, *later):
        for at in range(0, len(run), size):
            yield _bunch(run[at : at + size])


def _bunch(alike: Sequence[TimedStep]) -> _Bunch:
    return _Bunch(
        start_ns=alike[0].start_ns,
        end_ns=max(step.start_ns + step.duration_ns for step in alike),
        median_ns=float(median(step.duration_ns for step in alike)),
        least_ns=min(step.duration_ns for step in alike),
        longest_ns=max(step.duration_ns for step in alike),
        loader_ns=float(median(step.loader_ns for step in alike)),
    )


def _loading(steps: Sequence[TimedStep], clock: RunClock, top_ns: float) -> Iterator[Shape]:
    """The time in the data loader, drawn as wide as its steps."""
    training = [step for step in steps if step.state is not StepState.OTHER]
    parts: list[str] = []
    for bunch in _bunches(training):
        left = clock.across(bunch.start_ns)
        y = _y(bunch.loader_ns, top_ns)
        if bunch.loader_ns > 0:
            parts.append(rectangle(left, y, max(NARROWEST, clock.across(bunch.end_ns) - left), BOTTOM - y))
    if parts:
        yield Shape("".join(parts), LOADER_TIME, faint=True)


def _dots(steps: Sequence[TimedStep], clock: RunClock, top_ns: float) -> Iterator[Curve]:
    """One dot per step; in long runs one per bunch at its median, with a line from shortest to longest."""
    for state, paint in STEP_PAINTS.items():
        bunches = list(_bunches([step for step in steps if step.state is state]))
        dots: list[str] = []
        ranges: list[str] = []
        for bunch in bunches:
            x = clock.across((bunch.start_ns + bunch.end_ns) / 2)
            dots.append(points_path([(x, _y(bunch.median_ns, top_ns))]))
            if bunch.longest_ns > bunch.least_ns:
                ranges.append(points_path([(x, _y(bunch.longest_ns, top_ns)), (x, _y(bunch.least_ns, top_ns))]))
        if ranges:
            yield Curve("".join(ranges), paint, 1.0)
        if dots:
            yield Curve("".join(dots), paint, DOT)


def _legend(steps: Sequence[TimedStep]) -> Iterator[LegendEntry]:
    for state, paint in STEP_PAINTS.items():
        if found := sum(step.state is state and step.index > 0 for step in steps):
            yield LegendEntry(paint, STEP_STATE[state], count(found))
    if any(step.loader_ns for step in steps):
        yield LegendEntry(LOADER_TIME, "Time in data loader", "")


def _sentence(steps: Sequence[TimedStep], top_ns: float) -> str:
    few = len(steps) > MOST_POINTS
    dot = "Each dot is a few steps; its line shows the shortest and the longest" if few else "Each dot is a step"
    longer = [step.duration_ns for step in steps if step.duration_ns > top_ns]
    beyond = (
        f" {number_of(len(longer), 'step')} longer than {duration(top_ns)}, drawn at the top: "
        f"the longest took {duration(max(longer))}."
        if longer
        else ""
    )
    return f"{number_of(len(steps), 'step')} from the start of the run. {dot}.{beyond}"


def _table(steps: Sequence[TimedStep]) -> Table:
    """The run as a table: one row per sequence of steps with the same state."""
    columns = titled("Steps", "Profiler", "Median", "Longest", "Median time in data loader", words=("Profiler",))
    stretches = [list(alike) for _, alike in groupby(steps, key=lambda step: step.state)]
    rows = tuple(_row(alike) for alike in stretches[:MOST_ROWS])
    more = f", the first {MOST_ROWS} of {len(stretches)} rows" if len(stretches) > MOST_ROWS else ""
    return Table(f"Steps in order{more}", columns, rows)


def _row(alike: Sequence[TimedStep]) -> tuple[Cell, ...]:
    first, last = alike[0].index, alike[-1].index
    return (
        Cell(between(str(first), str(last))),
        Cell(STEP_STATE[alike[0].state]),
        Cell(duration(float(median(step.duration_ns for step in alike)))),
        Cell(duration(max(step.duration_ns for step in alike))),
        Cell(duration(float(median(step.loader_ns for step in alike)))),
    )
