"""A captured run as the templates read it, and the recordings that share it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from traceadvisor.model.report import Recording
from traceadvisor.model.run import Run, RunSettings, StateSteps, steps_by_state
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.charts.run_steps import run_steps_chart
from traceadvisor.rendering.page.settings import settings_table
from traceadvisor.rendering.table import Column, Table, cells
from traceadvisor.rendering.units import count, duration, percent
from traceadvisor.rendering.words import STEP_STATE


@dataclass(frozen=True, slots=True)
class CapturedRecordings:
    """Recordings with the run that they are of; where runs share a machine, the first one's."""

    recordings: tuple[Recording, ...]
    run: Run

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the recordings."""
        return tuple(recording.id for recording in self.recordings)

    @property
    def step_clock(self) -> RunClock | None:
        """From the start of the run's first step to the end of its last; None where no step was timed."""
        return self._clock(_ends_of_steps(self.run))

    @property
    def sample_clock(self) -> RunClock | None:
        """From the first sample to the last; None without samples."""
        return self._clock(_ends_of_samples(self.run))

    def _clock(self, moments: Iterator[int]) -> RunClock | None:
        ends = list(moments)
        if not ends or max(ends) <= min(ends):
            return None
        recorded = {window for recording in self.recordings if (window := recording.recorded_wall_ns)}
        return RunClock(min(ends), max(ends), tuple(sorted(recorded)))


def by_run(recordings: Sequence[Recording]) -> tuple[CapturedRecordings, ...]:
    """The captured recordings, those of one rank together."""
    return _grouped(recordings, lambda recording, _: (recording.path.parent, recording.worker))


def by_machine(recordings: Sequence[Recording]) -> tuple[CapturedRecordings, ...]:
    """The captured recordings, those with the same samples together."""
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
