"""Everything known of one recording on one device, computed when first asked for and then kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from traceadvisor.analysis.device_memory import DeviceMemory, device_memory
from traceadvisor.analysis.launches import Launches, link_launches
from traceadvisor.analysis.marks import recording_extent
from traceadvisor.analysis.observation import Observation, observe
from traceadvisor.analysis.operator_tree import OperatorTree, operator_tree
from traceadvisor.analysis.overlap import overlaps
from traceadvisor.analysis.recording_health import recording_notes, timing_notes
from traceadvisor.analysis.run_timing import DISTURBED_SHARE, NOT_COUNTED, RunTiming, run_timing
from traceadvisor.analysis.source_lines import first_location
from traceadvisor.analysis.step_breakdown import Partition, break_down, partition_recording
from traceadvisor.analysis.step_windows import step_windows
from traceadvisor.analysis.telemetry_figures import telemetry_window
from traceadvisor.hardware.tensor_cores import has_tensor_cores
from traceadvisor.model.breakdown import Category, MeanBreakdown
from traceadvisor.model.findings import Confidence, Estimate, Input, Location, Method
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import Overlap, StepRow, Work
from traceadvisor.model.run import Run, RunSettings, StepState
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.steps import StepSource, StepTable
from traceadvisor.model.telemetry_window import DeviceWindow, TelemetryWindow
from traceadvisor.model.trace import Device, Trace

FEWEST_STEPS = 3
"""Below this a mean says little of the run."""


@dataclass(frozen=True, eq=False)
class Facts:
    """What rules read. Shares are of the mean kept step, 0..1."""

    trace: Trace
    device_index: int | None
    """None for a recording without device activity."""

    recording_id: str
    run: Run | None = None
    """What a capture knows beside the recording; None for a recording made otherwise."""

    run_notes: tuple[HealthNote, ...] = ()
    """What went wrong with the capture."""

    # -- steps and where their time goes -----------------------------------------------------------------------

    @cached_property
    def launches(self) -> Launches:
        """The device's work and the calls that launched it."""
        everything = link_launches(self.trace.events)
        if self.device_index is None:
            return everything
        return everything.of_device(self.trace.events, self.device_index)

    @cached_property
    def observation(self) -> Observation:
        """The recording as this device saw it."""
        return observe(self.trace, self.launches)

    @cached_property
    def steps(self) -> StepTable:
        """The steps and their windows."""
        return step_windows(self.trace, self.launches, self._not_counted)

    @property
    def _not_counted(self) -> Mapping[int, str]:
        steps = self.run.steps if self.run else ()
        return {step.index: NOT_COUNTED[step.state] for step in steps if step.state in NOT_COUNTED}

    @cached_property
    def timing(self) -> RunTiming:
        """The steps of the whole run, recorded or not."""
        loader = self.settings.loader
        return run_timing(self.run.steps if self.run else (), burst=max((loader and loader.worker_count) or 1, 1))

    @cached_property
    def partition(self) -> Partition:
        """Every instant of the recording in its category."""
        return partition_recording(self.observation)

    @cached_property
    def step_rows(self) -> tuple[StepRow, ...]:
        """Each step with its breakdown."""
        has_loader = self.observation.loader is not None
        return tuple(
            StepRow(step, break_down(step, self.partition, has_loader=has_loader)) for step in self.steps.steps
        )

    @cached_property
    def mean(self) -> MeanBreakdown | None:
        """The mean over the kept steps; None where there are none."""
        kept = [row.breakdown for row in self.step_rows if row.step.kept]
        return MeanBreakdown.over(kept) if kept else None

    @cached_property
    def overlaps(self) -> Mapping[Work, Overlap | None]:
        """Total and exposed time of each kind of work."""
        return overlaps(self.observation, self.partition, self.steps)

    @cached_property
    def tree(self) -> OperatorTree:
        """Which operator runs inside which."""
        return operator_tree(self.trace.events)

    @property
    def device(self) -> Device | None:
        """The device; None for a recording without device activity."""
        return None if self.device_index is None else self.trace.device(self.device_index)

    # -- what rules ask ----------------------------------------------------------------------------------------

    def claim(self, category: Category) -> SpanSet:
        """The instants of a category within the kept windows."""
        return self.partition[category] & self.steps.kept_windows

    def per_step_ns(self, spans: SpanSet) -> float:
        """Mean nanoseconds per kept step."""
        return spans.total_ns / max(len(self.steps.kept), 1)

    def share(self, spans: SpanSet) -> float:
        """Share of the kept windows."""
        return spans.total_ns / max(self.steps.kept_windows.total_ns, 1)

    @property
    def step_ns(self) -> float | None:
        """The step that savings are of: the undisturbed one where it is known, else the mean recorded one."""
        return self.timing.undisturbed_ns or (self.mean.duration_ns if self.mean else None)

    def bound(self, most_ns: float) -> Estimate:
        """A saving known only to lie between nothing and ``most_ns`` of the recorded step.

        It is brought to the scale of the undisturbed step; the middle stands for the expected value.
        """
        recorded_ns = self.mean.duration_ns if self.mean else 0.0
        scale = self.step_ns / recorded_ns if self.step_ns and recorded_ns else 1.0
        return Estimate(0.0, most_ns * scale / 2, most_ns * scale, Method.BOUND)

    def confidence(self) -> Confidence:
        """How sure a cause seen in this recording is: less without step marks, with few steps, with a damaged file."""
        doubts = (
            (self.steps.source is not StepSource.MARKS)
            + (len(self.steps.kept) < FEWEST_STEPS)
            + any(note.degrades for note in self.trace.health.notes)
            + (abs(self.timing.disturbance_share or 0.0) > DISTURBED_SHARE)
        )
        return (Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW)[min(doubts, 2)]

    def missing(self, needs: frozenset[Input]) -> str | None:
        """Why a rule with these needs cannot look, and how to get what is missing; None where nothing is."""
        return next((reason for need, reason in self._missing_inputs.items() if need in needs), None)

    @cached_property
    def _missing_inputs(self) -> Mapping[Input, str]:
        device = self.device
        present = {
            Input.STEPS: bool(self.steps.kept),
            Input.DEVICE: bool(self.partition.get(Category.KERNEL)),
            Input.LOADER: self.observation.loader is not None,
            Input.LAUNCHES: bool((self.launches.call_rows >= 0).any()),
            Input.STACKS: self.trace.with_stacks,
            Input.DTYPES: self.trace.with_shapes,
            Input.DEVICE_MODEL: device is not None and has_tensor_cores(device) is not None,
            Input.SETTINGS: self.run is not None and self.run.settings.loader is not None,
            Input.HOST_TELEMETRY: self.telemetry is not None and self.telemetry.node.sample_count > 0,
            Input.DEVICE_TELEMETRY: self.device_telemetry is not None,
            Input.DEVICE_MEMORY: self.memory is not None,
        }
        return {need: _HOW_TO_GET[need] for need in Input if not present[need]}

    @property
    def samples_per_s(self) -> float | None:
        """Of this rank, from the undisturbed steps; None where the batch size is not known."""
        loader = self.run.settings.loader if self.run else None
        step_ns, fetches = self.timing.undisturbed_ns, self.timing.fetches_per_step
        if loader is None or not loader.batch_size or not step_ns or not fetches:
            return None
        return loader.batch_size * fetches / step_ns * 1e9

    @cached_property
    def telemetry(self) -> TelemetryWindow | None:
        """The machine over the steps of the run that no profiler touched; None without samples or such steps."""
        samples = self.run.telemetry if self.run else None
        steps = [step for step in self.run.steps if step.state is StepState.PLAIN and step.index] if self.run else []
        if samples is None or not steps:
            return None
        return telemetry_window(
            samples, SpanSet.of(*((step.start_ns, step.start_ns + step.duration_ns) for step in steps))
        )

    @property
    def settings(self) -> RunSettings:
        """What a capture recorded of the run's settings; all unknown without one."""
        return self.run.settings if self.run else RunSettings()

    @property
    def loader_location(self) -> Location | None:
        """The line of the training loader's loop, as captured or as far as stacks tell."""
        if self.settings.loader and self.settings.loader.location:
            return self.settings.loader.location
        loader = self.observation.loader
        return first_location(self.trace, self.tree, loader.rows) if loader else None

    @property
    def spare_cores(self) -> int | None:
        """Cores that this rank's workers may use beside its training thread, at least one; None where not known."""
        limits = [limit for limit in (self.settings.cpu_quota, self.settings.cpu_count) if limit is not None]
        return max(int(min(limits) / self.settings.ranks_on_host) - 1, 1) if limits else None

    @property
    def loading_cores(self) -> float | None:
        """Cores that this rank's loader workers keep busy together; None where they were not sampled."""
        sampled = self.telemetry.processes.workers if self.telemetry else ()
        busy = [worker.mean_cpu_cores for worker in sampled if worker.mean_cpu_cores is not None]
        return sum(busy) / self.settings.ranks_on_host if busy else None

    @cached_property
    def device_telemetry(self) -> DeviceWindow | None:
        """This device's samples over the undisturbed steps; None where it cannot be told which device they are of."""
        samples = self.run.telemetry if self.run else None
        if self.telemetry is None or samples is None or self.device_index is None:
            return None
        matching = [
            window
            for device, window in zip(samples.devices, self.telemetry.devices, strict=True)
            if device.cuda_index == self.device_index
        ]
        if not matching and len(samples.devices) == 1:
            matching = list(self.telemetry.devices)
        return matching[0] if matching and matching[0].sample_count else None

    @cached_property
    def memory(self) -> DeviceMemory | None:
        """How much of the device's memory the run holds; None where not measured."""
        if self.device_index is None:
            return None
        return device_memory(self.trace, self.device_index, self.steps.kept_windows, self.device_telemetry)

    # -- the report's part -------------------------------------------------------------------------------------

    @cached_property
    def notes(self) -> tuple[HealthNote, ...]:
        """What a reader must know before believing the figures."""
        return (
            *self.trace.health.notes,
            *self.run_notes,
            *recording_notes(self.observation, self.steps),
            *timing_notes(self.timing),
        )

    @property
    def recorded_wall_ns(self) -> tuple[int, int] | None:
        """When the recording began and ended, wall clock; None where it does not say."""
        start = self.trace.wall_clock_start_ns
        return None if start is None else (start, start + recording_extent(self.trace)[1])


_HOW_TO_GET = {
    Input.STEPS: "No complete step was recorded: let the profiler's active window hold several steps.",
    Input.DEVICE: "No kernels were recorded: record with ProfilerActivity.CUDA on a machine with a GPU.",
    Input.LOADER: "No data loader events were recorded: let the profiled loop iterate over its DataLoader.",
    Input.LAUNCHES: "No launch calls were recorded: record with ProfilerActivity.CPU beside the device's.",
    Input.STACKS: "No call stacks were recorded: record with with_stack=True.",
    Input.DTYPES: "No operator input types were recorded: record with record_shapes=True.",
    Input.DEVICE_MODEL: "What the device is capable of is not known: it is not said, or not NVIDIA's.",
    Input.SETTINGS: "The loader's settings are not known: record with `traceadvisor capture`.",
    Input.HOST_TELEMETRY: "The host was not sampled: record with `traceadvisor capture`.",
    Input.DEVICE_TELEMETRY: "The device was not sampled: record with `traceadvisor capture` where NVML works.",
    Input.DEVICE_MEMORY: "Device memory was not recorded: record with profile_memory=True or `traceadvisor capture`.",
}
