"""A captured run as the templates show it, and the recordings that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from traceadvisor.frozen import frozen
from traceadvisor.model.report import Recording
from traceadvisor.model.run import Run, RunSettings, StateSteps, steps_by_state
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.charts.run_steps import run_steps_chart
from traceadvisor.rendering.page.settings import settings_table
from traceadvisor.rendering.run_lines import LinesView, lines_view
from traceadvisor.rendering.run_time import (
    distortion_remark,
    distortion_table,
    run_bar,
    run_time_of,
    run_time_sentence,
)
from traceadvisor.rendering.table import Column, Table, cells
from traceadvisor.rendering.units import count, duration, percent
from traceadvisor.rendering.words import STEP_STATE


@frozen
class CapturedRecordings:
    """Recordings and their run; the first run, if several runs share a machine."""

    recordings: tuple[Recording, ...]
    run: Run

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the recordings."""
        return tuple(recording.id for recording in self.recordings)

    @property
    def step_clock(self) -> RunClock | None:
        """The clock from the start of the first step to the end of the last; None without timed steps."""
        return self._clock(_ends_of_steps(self.run))

    @property
    def sample_clock(self) -> RunClock | None:
        """The clock from the first sample to the last; None without samples."""
        return self._clock(_ends_of_samples(self.run))

    def _clock(self, moments: Iterator[int]) -> RunClock | None:
        ends = list(moments)
        if not ends or max(ends) <= min(ends):
            return None
        recorded = {window for recording in self.recordings if (window := recording.recorded_wall_ns)}
        return RunClock(min(ends), max(ends), tuple(sorted(recorded)))


def by_run(recordings: Sequence[Recording]) -> tuple[CapturedRecordings, ...]:
    """The captured recordings, grouped by rank."""
    return _grouped(recordings, lambda recording, _: (recording.path.parent, recording.worker))


def by_machine(recordings: Sequence[Recording]) -> tuple[CapturedRecordings, ...]:
    """The captured recordings, grouped by their telemetry."""
    return _grouped(
        recordings, lambda recording, run: (recording.path.parent, run.telemetry.host if run.telemetry else None)
    )


def _grouped(
    recordings: Sequence[Recording], key: Callable[[Recording, Run], Hashable]
) -> tuple[CapturedRecordings, ...]:
    groups: dict[Hashable, list[Recording]] = {}
    runs: dict[Hashable, Run] = {}
    for recording in recordings:
        if recording.captured is not None:
            shared = key(recording, recording.captured)
            groups.setdefault(shared, []).append(recording)
            runs.setdefault(shared, recording.captured)
    return tuple(CapturedRecordings(tuple(group), runs[shared]) for shared, group in groups.items())


def _ends_of_steps(run: Run) -> Iterator[int]:
    """Wall clock."""
    for step in run.steps:
        yield step.start_ns
        yield step.start_ns + step.duration_ns


def _ends_of_samples(run: Run) -> Iterator[int]:
    """Wall clock."""
    if run.telemetry is not None:
        series = (run.telemetry.node, run.telemetry.processes, *(device.series for device in run.telemetry.devices))
        for one in series:
            if one.time_ns.size:
                yield int(one.time_ns[0])
                yield int(one.time_ns[-1])


@frozen
class RunView:
    """All steps and the settings of one rank's run."""

    recordings: tuple[str, ...]
    remark: str | None
    """A remark if the undisturbed median is not over single steps."""

    time_bar: Chart | None
    """Where the time of the run goes."""

    time_sentence: str | None
    distortion: Table | None
    """Recorded steps beside undisturbed ones."""

    distortion_remark: str | None
    chart: Chart | None
    states: Table | None
    lines: LinesView | None
    """None if the stack was not sampled."""

    settings: Table


def run_view(shared: CapturedRecordings, number: int) -> RunView:
    """The view of the run with this number in the report, counted from 1."""
    run, clock = shared.run, shared.step_clock
    undisturbed = next((one.undisturbed_median_step_ns for one in shared.recordings), None)
    states = steps_by_state(run)
    first = shared.recordings[0]
    time = run_time_of(first)
    return RunView(
        recordings=shared.ids,
        remark=_remark(run.settings),
        time_bar=run_bar(time, f"run-{number}-time") if time else None,
        time_sentence=run_time_sentence(time) if time else None,
        distortion=distortion_table(first.distortion) if first.distortion else None,
        distortion_remark=distortion_remark(first.distortion) if first.distortion else None,
        chart=run_steps_chart(run.steps, undisturbed, clock, f"run-{number}-steps") if clock else None,
        states=_table(states) if states else None,
        lines=lines_view(next((one.run_lines for one in shared.recordings if one.run_lines), None)),
        settings=settings_table(run),
    )


def _remark(settings: RunSettings) -> str | None:
    workers = settings.loader.worker_count if settings.loader else None
    if workers is None or workers < 2:
        return None
    return (
        f"The {workers} data loader workers deliver batches in bursts: one step waits, the next steps do not. "
        f"So each value in the undisturbed median is the mean of {workers} successive steps."
    )


def _table(states: tuple[StateSteps, ...]) -> Table:
    columns = (
        Column("Profiler", numeric=False),
        Column("Steps"),
        Column("Median step"),
        Column("Mean step"),
        Column("Longest"),
        Column("Mean time in data loader"),
        Column("Share of the step"),
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
    return Table("Steps of the run by profiler state", columns, rows)
