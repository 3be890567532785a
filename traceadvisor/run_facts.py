"""The run that a recording is part of: its settings, its steps, its machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from traceadvisor.analysis.recording_health import is_busy
from traceadvisor.analysis.sampled.costliest_line import costliest_line
from traceadvisor.analysis.sampled.exact_lines import ExactLines
from traceadvisor.analysis.sampled.loader_line import LoaderLine, loader_line
from traceadvisor.analysis.sampled.run_lines import run_lines
from traceadvisor.analysis.steps.feeding_loops import feeding_loops
from traceadvisor.analysis.steps.run_time import run_time
from traceadvisor.analysis.steps.run_timing import why_not_counted
from traceadvisor.analysis.telemetry_figures import telemetry_window
from traceadvisor.analysis.whole_run.between_steps import BetweenSteps, between_steps
from traceadvisor.analysis.whole_run.growth import run_growth
from traceadvisor.analysis.whole_run.sampled_steps import SampledSteps, sampled_steps
from traceadvisor.analysis.whole_run.slow_steps import SlowSteps, slow_steps
from traceadvisor.model.location import Location
from traceadvisor.model.run import Run, RunSettings, StepState, TimedStep
from traceadvisor.model.run_time import CostliestLine, RunGrowth, RunLines, RunTime
from traceadvisor.model.samples import StackSamples
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.telemetry import DeviceTelemetry, Series, Telemetry
from traceadvisor.model.telemetry_window import DeviceWindow, TelemetryWindow
from traceadvisor.model.trace import Trace


@dataclass(frozen=True, eq=False)
class RunFacts:
    """Facts that a capture recorded about the run around a recording; without a capture nearly all of it is unknown.

    Telemetry is that of the undisturbed steps: those that no profiler touched.
    """

    trace: Trace
    device_index: int | None
    """None for a recording without device activity."""

    captured: Run | None = None
    """None for a recording made without ``traceadvisor capture``."""

    least_work_ns: Callable[[], float] = float
    """Returns the device's own work of a recorded step; 0 without a device."""

    @property
    def steps(self) -> Sequence[TimedStep]:
        """All steps of the run, recorded or not; empty without a capture."""
        return self.captured.steps if self.captured else ()

    @property
    def validation_loops(self) -> int:
        """Loops over a loader without an optimizer step, whose batches do not train."""
        feeds = feeding_loops(self.steps, self._sampled_steps)
        return sum(step.state is StepState.OTHER and step.fetches > 0 for step in self.steps) - len(feeds)

    @property
    def validation_workers_ns(self) -> int:
        """Time in loops without an optimizer step that their loaders' kept workers would save.

        Processes start before the first batch is asked for, so that time is not in the loops.
        """
        anew = (one for one in self.settings.loops or () if not one.trains and not one.keeps_workers)
        return sum(one.workers_ns - one.worker_start_ns for one in anew if one.batch_ns is not None)

    @property
    def checkpoints_between_epochs_ns(self) -> int:
        """Time in checkpoints, but for that which makes steps within an epoch slow."""
        within = (step.state is StepState.PLAIN and step.index > 0 and not step.loader_start_ns for step in self.steps)
        return sum(step.checkpoint_ns or 0 for step, is_within in zip(self.steps, within, strict=True) if not is_within)

    @property
    def saving(self) -> Set[int]:
        """Indices of the steps that save a checkpoint."""
        return {step.index for step in self.steps if step.checkpoint_ns}

    @cached_property
    def settings(self) -> RunSettings:
        """The run's settings; all unknown without a capture."""
        return self.captured.settings if self.captured else RunSettings()

    @property
    def batch_size(self) -> int | None:
        """Samples of a batch of the training loader; None where not known."""
        return self.settings.loader.batch_size if self.settings.loader else None

    @property
    def worker_count(self) -> int | None:
        """Worker processes of the training loader; None where not known."""
        return self.settings.loader.worker_count if self.settings.loader else None

    @property
    def not_counted(self) -> Mapping[int, str]:
        """Why some steps are no usual ones, by their index."""
        return {step.index: why for step in self.steps if (why := why_not_counted(step))}

    @cached_property
    def time(self) -> RunTime | None:
        """Time of the whole run by phase; None without a capture or a timed step."""
        return run_time(self.captured, self.slow, self._sampled_steps) if self.captured else None

    @property
    def loop_samples_per_s(self) -> float | None:
        """Samples of the training steps over the time of the loop; None where the batch size or the run is unknown."""
        fetches = sum(step.fetches for step in self.steps if step.state is not StepState.OTHER)
        if self.time is None or not self.batch_size or self.time.loop_ns <= 0 or not fetches:
            return None
        return self.batch_size * fetches / self.time.loop_ns * 1e9

    @cached_property
    def slow(self) -> SlowSteps:
        """Slow steps of the whole run by cause; none without a capture."""
        if self.captured is None:
            return SlowSteps()
        return slow_steps(self.captured, self._sampled_steps, self.least_work_ns())

    @cached_property
    def growth(self) -> RunGrowth | None:
        """Growth of the steps over the run; None if they do not grow, or without a capture."""
        has_device = self.device_index is not None or bool(self.settings.devices)
        if self.captured is None:
            return None
        others = is_busy(self.telemetry, self.host_cores)
        return run_growth(self.captured, self._sampled_steps, has_device=has_device, is_busy=others)

    @cached_property
    def between_steps(self) -> BetweenSteps | None:
        """The function that takes most between training steps; None if too few samples show it."""
        return (
            between_steps(self.captured, self._sampled_steps, self.time.loop_ns)
            if self.captured and self.time
            else None
        )

    @cached_property
    def _sampled_steps(self) -> SampledSteps | None:
        return sampled_steps(self.captured, self._loop) if self.captured else None

    @cached_property
    def lines(self) -> RunLines | None:
        """Time of the training thread over the run, by line; None if its stack was not sampled."""
        return run_lines(self.stack_samples, self._loop)

    @cached_property
    def costliest_line(self) -> CostliestLine | None:
        """The user's line that holds most of the training loop; None if samples do not show one."""
        return costliest_line(self.stack_samples, self.steps, self._loop)

    @cached_property
    def exact_lines(self) -> ExactLines:
        """Lines of calls in training steps, from samples; knows none if the stack was not sampled."""
        return ExactLines(self.stack_samples, self._loop)

    @property
    def _loop(self) -> Location | None:
        """The user's line that asks for the batches of training."""
        return self.settings.loader.location if self.settings.loader else None

    @property
    def stack_samples(self) -> StackSamples | None:
        """Samples of the training thread's stack over the whole run; None if it was not sampled."""
        return self.captured.stacks if self.captured else None

    @property
    def loading_samples(self) -> StackSamples | None:
        """Samples of the threads that make batches: the workers', or the training thread's; None without any."""
        workers = self.captured.loader_stacks if self.captured else None
        return workers if self.worker_count else self.stack_samples

    @cached_property
    def loader_line(self) -> LoaderLine | None:
        """The user's line that takes most of the time of a batch; None if samples do not show it."""
        return loader_line(self.loading_samples)

    @cached_property
    def undisturbed(self) -> SpanSet:
        """The undisturbed steps but the run's first; wall clock, since the epoch."""
        steps = [step for step in self.steps if step.state is StepState.PLAIN and step.index]
        return SpanSet.of(*((step.start_ns, step.start_ns + step.duration_ns) for step in steps))

    @cached_property
    def telemetry(self) -> TelemetryWindow | None:
        """The machine's samples; None without any, or without undisturbed steps."""
        samples = self._samples
        if samples is None or not self.undisturbed:
            return None
        return telemetry_window(samples, self.undisturbed)

    @cached_property
    def device_telemetry(self) -> DeviceWindow | None:
        """This device's samples; None without any, or where they may be another device's."""
        found = None if self.device_index is None else self._sampled(self.device_index)
        return found[1] if found and found[1].sample_count else None

    @cached_property
    def sampled_device(self) -> DeviceTelemetry | None:
        """Samples of this device over the whole run; None as above."""
        found = None if self.device_index is None else self._sampled(self.device_index)
        return found[0] if found else None

    def _sampled(self, device_index: int) -> tuple[DeviceTelemetry, DeviceWindow] | None:
        """A device of the recording among those sampled; None if it is not known to be one of them."""
        samples = self._samples
        if self.telemetry is None or samples is None:
            return None
        pairs = zip(samples.devices, self.telemetry.devices, strict=True)
        return next((pair for pair in pairs if pair[0].cuda_index == device_index), None)

    @property
    def _samples(self) -> Telemetry | None:
        return self.captured.telemetry if self.captured else None

    @property
    def sampled_processes(self) -> Series | None:
        """Samples of the training processes over the whole run; None without any."""
        return self._samples.processes if self._samples else None

    @property
    def rank_count(self) -> int:
        """Processes that train together."""
        recorded = self.trace.distributed.world_size if self.trace.distributed else None
        return max(recorded or 1, self.captured.world_size if self.captured else 1)

    @property
    def mean_power_watts(self) -> float | None:
        """Power that this process's devices draw together over the undisturbed steps; None where one's is not known."""
        sampled = [self._sampled(index) for index in self.trace.device_indices]
        watts = [one[1].mean_power_watts for one in sampled if one and one[1].mean_power_watts is not None]
        return sum(watts) if watts and len(watts) == len(sampled) else None

    @property
    def cores(self) -> float | None:
        """Cores that this rank's training thread and loader workers may use; None where not known."""
        limits = [limit for limit in (self.settings.cpu_quota, self.settings.cpu_count) if limit is not None]
        return min(limits) / self.settings.ranks_on_host if limits else None

    @property
    def host_memory_bytes(self) -> int | None:
        """Memory of the machine; None where it was not sampled."""
        return self._samples.memory_bytes if self._samples else None

    @property
    def host_cores(self) -> int | None:
        """Cores of the machine, by the settings or the samples."""
        return self.settings.cpu_count or (self._samples.cpu_count if self._samples else None)
