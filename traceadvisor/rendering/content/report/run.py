"""A captured run, and the recordings that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from traceadvisor.frozen import frozen
from traceadvisor.model.report import Recording
from traceadvisor.model.run import Run, RunSettings, StateSteps, steps_by_state
from traceadvisor.model.workload import Workload
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.run_steps import run_steps_chart
from traceadvisor.rendering.content.report.loader_time import loader_time_blocks
from traceadvisor.rendering.content.report.run_lines import lines_fold
from traceadvisor.rendering.content.report.run_time import (
    distortion_remark,
    distortion_table,
    growth_sentence,
    run_chart,
)
from traceadvisor.rendering.document.blocks import Block, Group, Prose, Tone
from traceadvisor.rendering.document.detail import Detail
from traceadvisor.rendering.document.table import Cell, Layout, Table, by_column
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


def run_blocks(shared: CapturedRecordings, number: int, *, several: bool) -> Iterator[Block]:
    """The run with this number in the report, counted from 1."""
    inside = tuple(_run(shared, f"run-{number}"))
    if several:
        yield Group(", ".join(shared.ids), inside, detail=Detail.SUMMARY)
    else:
        yield from inside


def _run(shared: CapturedRecordings, anchor: str) -> Iterator[Block]:
    """The time of the run by part, its recorded steps beside undisturbed ones, all steps, and the lines."""
    run, first, clock = shared.run, shared.recordings[0], shared.step_clock
    of_inference = first.workload is not Workload.TRAINING
    if remark := _remark(run.settings):
        yield Prose(remark, Tone.CONTEXT)
    if first.run_time and (chart := run_chart(first.run_time, f"{anchor}-time", of_inference=of_inference)):
        yield replace(chart, detail=Detail.COMMENT)
    if first.run_growth:
        yield Prose(growth_sentence(first.run_growth), Tone.STRONG)
    undisturbed = next((one.undisturbed_median_step_ns for one in shared.recordings), None)
    if clock and (chart := run_steps_chart(run.steps, undisturbed, clock, f"{anchor}-steps")):
        yield chart
    if first.distortion:
        about = Prose(distortion_remark(first.distortion, of_inference=of_inference), Tone.QUIET)
        table = distortion_table(first.distortion)
        yield Group(table.caption, (about, table), detail=Detail.COMMENT)
    loader_time = next((one.loader_time for one in shared.recordings if one.loader_time), None)
    yield from loader_time_blocks(loader_time, f"{anchor}-loading")
    if states := steps_by_state(run):
        title = "Steps of the run by profiler state"
        yield Table(title, *by_column(_STATE, states), layout=Layout.NARROW, is_named=True)
    else:
        yield Prose("Steps of the run: not measured.", Tone.QUIET)
    sampled = next((one.run_lines for one in shared.recordings if one.run_lines), None)
    if lines := lines_fold(sampled, of_inference=of_inference):
        yield lines


STOPPED = (
    "The run was stopped after its recording. Whether later steps are slower, or grow, and how long a whole run takes, "
    "is unknown: capture without --stop-after-window to see it."
)
ONLY_RECORDED = (
    "Only the recorded steps are known. Whether other steps are slower, or grow, and how long the start takes, is "
    "unknown: `traceadvisor capture` times every step of a run."
)


def unknown_blocks(recordings: Sequence[Recording]) -> Iterator[Block]:
    """Sentences on the parts of the run that the recordings do not show."""
    if any(one.captured and one.captured.was_stopped for one in recordings):
        yield Prose(STOPPED, Tone.QUIET, Detail.SUMMARY)
    if recordings and not any(one.captured or one.framework for one in recordings):  # a capture is of PyTorch
        yield Prose(ONLY_RECORDED, Tone.QUIET)


def _remark(settings: RunSettings) -> str | None:
    workers = settings.loader.worker_count if settings.loader else None
    if workers is None or workers < 2:
        return None
    return (
        f"The {workers} data loader workers deliver batches in bursts: one step waits, the next steps do not. "
        f"So each value in the undisturbed median is the mean of {workers} successive steps."
    )


_STATE: Mapping[str, Callable[[StateSteps], Cell]] = {
    "Profiler": lambda row: Cell(STEP_STATE[row.state]),
    "Steps": lambda row: Cell(count(row.count)),
    "Median step": lambda row: Cell(duration(row.median_ns)),
    "Mean step": lambda row: Cell(duration(row.mean_ns)),
    "Longest": lambda row: Cell(duration(row.longest_ns)),
    "Mean time in data loader": lambda row: Cell(duration(row.mean_loader_ns)),
    "Share of the step": lambda row: Cell(percent(row.mean_loader_ns / row.mean_ns if row.mean_ns else None)),
}
