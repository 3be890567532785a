"""A captured run as the templates read it."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.run import RunSettings, StateSteps, steps_by_state
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.charts.run_steps import run_steps_chart
from traceadvisor.rendering.page.captured import CapturedRecordings
from traceadvisor.rendering.page.settings import settings_table
from traceadvisor.rendering.table import Column, Table, cells
from traceadvisor.rendering.units import count, duration, percent
from traceadvisor.rendering.words import STEP_STATE


@dataclass(frozen=True, slots=True)
class RunView:
    """One rank's run: all its steps, and its settings."""

    recordings: tuple[str, ...]
    remark: str | None
    """What the undisturbed median is over, where not over single steps."""

    chart: Chart | None
    states: Table | None
    settings: Table


def run_view(shared: CapturedRecordings, number: int) -> RunView:
    """The view of the run that stands at this place in the report, from 1."""
    run, clock = shared.run, shared.step_clock
    undisturbed = next((one.undisturbed_median_step_ns for one in shared.recordings), None)
    states = steps_by_state(run)
    return RunView(
        recordings=shared.ids,
        remark=_remark(run.settings),
        chart=run_steps_chart(run.steps, undisturbed, clock, f"run-{number}-steps") if clock else None,
        states=_table(states) if states else None,
        settings=settings_table(run),
    )


def _remark(settings: RunSettings) -> str | None:
    workers = settings.loader.worker_count if settings.loader else None
    if workers is None or workers < 2:
        return None
    return (
        f"The loader's {workers} workers deliver in bursts: one step waits for all of them, the next ones for none. "
        f"So the undisturbed median is over means of {workers} successive steps."
    )


def _table(states: tuple[StateSteps, ...]) -> Table:
    columns = (
        Column("Profiler", numeric=False),
        Column("Steps"),
        Column("Median step"),
        Column("Mean step"),
        Column("Longest"),
        Column("Mean in the loader"),
        Column("Of the step"),
    )
    rows = tuple(
        cells(
            STEP_STATE[row.state],
            count(row.count),
            duration(row.median_ns),
            duration(row.mean_ns),
            duration(row.longest_ns),
            duration(row.mean_loader_ns),
            percent(row.mean_loader_ns / row.mean_ns if row.mean_ns else None),
        )
        for row in states
    )
    return Table("Steps of the run by what the profiler was doing", columns, rows)
