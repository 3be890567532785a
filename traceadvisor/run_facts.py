"""What is known of the run that a recording is part of: its settings, its steps, its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from traceadvisor.analysis.steps.marks import recording_extent
from traceadvisor.analysis.steps.run_timing import NOT_COUNTED, RunTiming, run_timing
from traceadvisor.analysis.telemetry_figures import telemetry_window
from traceadvisor.model.events import DEVICE_WORK, NONE
from traceadvisor.model.health import HealthNote
from traceadvisor.model.run import Run, RunSettings, StepState
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.telemetry import DeviceTelemetry
from traceadvisor.model.telemetry_window import DeviceWindow, TelemetryWindow
from traceadvisor.model.trace import Device, Trace


@dataclass(frozen=True, eq=False)
class RunFacts:
    """One recording on one device, and the run around it."""

    trace: Trace
    device_index: int | None
    """None for a recording without device activity."""

    recording_id: str
    run: Run | None = None
    """What a capture knows beside the recording; None for a recording made otherwise."""

    run_notes: tuple[HealthNote, ...] = ()
    """What went wrong with the capture."""

    @property
    def settings(self) -> RunSettings:
        """What a capture recorded of the run's settings; all unknown without one."""
        return self.run.settings if self.run else RunSettings()

    @property
    def _not_counted(self) -> Mapping[int, str]:
        steps = self.run.steps if self.run else ()
        return {step.index: NOT_COUNTED[step.state] for step in steps if step.state in NOT_COUNTED}

    @cached_property
    def timing(self) -> RunTiming:
        """The steps of the whole run, recorded or not."""
        loader = self.settings.loader
        return run_timing(self.run.steps if self.run else (), burst=max((loader and loader.worker_count) or 1, 1))

    @property
    def samples_per_s(self) -> float | None:
        """Of this rank, from the undisturbed steps; None where the batch size is not known."""
        loader = self.run.settings.loader if self.run else None
        step_ns, fetches = self.timing.undisturbed_ns, self.timing.fetches_per_step
        if loader is None or not loader.batch_size or not step_ns or not fetches:
            return None
        return loader.batch_size * fetches / step_ns * 1e9

    @cached_property
    def undisturbed(self) -> SpanSet:
        """The steps of the run that no profiler touched, the first one apart; wall clock, since the epoch."""
        steps = [step for step in self.run.steps if step.state is StepState.PLAIN and step.index] if self.run else []
        return SpanSet.of(*((step.start_ns, step.start_ns + step.duration_ns) for step in steps))

    @cached_property
    def telemetry(self) -> TelemetryWindow | None:
        """The machine over the steps of the run that no profiler touched; None without samples or such steps."""
        samples = self.run.telemetry if self.run else None
        if samples is None or not self.undisturbed:
            return None
        return telemetry_window(samples, self.undisturbed)

    @property
    def device(self) -> Device | None:
        """The device; None for a recording without device activity."""
        return None if self.device_index is None else self.trace.device(self.device_index)

    @cached_property
    def device_telemetry(self) -> DeviceWindow | None:
        """This device's samples over the undisturbed steps; None where it cannot be told which device they are of."""
        found = None if self.device_index is None else self._sampled(self.device_index)
        return found[1] if found and found[1].sample_count else None

    @cached_property
    def sampled_device(self) -> DeviceTelemetry | None:
        """What was sampled of this device over the whole run; None as above."""
        found = None if self.device_index is None else self._sampled(self.device_index)
        return found[0] if found else None

    def _sampled(self, device_index: int) -> tuple[DeviceTelemetry, DeviceWindow] | None:
        """A device of the recording among those sampled; the only one sampled where numbers do not tell."""
        samples = self.run.telemetry if self.run else None
        if self.telemetry is None or samples is None:
            return None
        pairs = list(zip(samples.devices, self.telemetry.devices, strict=True))
        matching = [pair for pair in pairs if pair[0].cuda_index == device_index]
        return matching[0] if matching else pairs[0] if len(pairs) == 1 else None

    @cached_property
    def device_indices(self) -> tuple[int, ...]:
        """The devices that this process uses, as far as they were recorded."""
        rows = self.trace.events.rows(*DEVICE_WORK)
        return tuple(sorted(set(self.trace.events.device[rows].tolist()) - {NONE}))

    @property
    def rank_count(self) -> int:
        """Processes that train together."""
        recorded = self.trace.distributed.world_size if self.trace.distributed else None
        return max(recorded or 1, self.run.world_size if self.run else 1)

    @property
    def joules_per_sample(self) -> float | None:
        """Energy that this process's devices draw for a sample; None where their power or the rate is not known."""
        sampled = [self._sampled(index) for index in self.device_indices]
        watts = [one[1].mean_power_watts for one in sampled if one and one[1].mean_power_watts is not None]
        if not watts or len(watts) < len(sampled) or not self.samples_per_s:
            return None
        return sum(watts) / self.samples_per_s

    @property
    def cores(self) -> float | None:
        """Cores that this rank may keep busy, its training thread and its workers together; None where not known."""
        limits = [limit for limit in (self.settings.cpu_quota, self.settings.cpu_count) if limit is not None]
        return min(limits) / self.settings.ranks_on_host if limits else None

    @property
    def spare_cores(self) -> int | None:
        """Whole cores of these beside the training thread's, at least one: the most workers worth starting."""
        return None if self.cores is None else max(int(self.cores) - 1, 1)

    @property
    def loading_cores(self) -> float | None:
        """Cores that this rank's loader workers keep busy together; None where they were not sampled."""
        sampled = self.telemetry.processes.workers if self.telemetry else ()
        busy = [worker.mean_cpu_cores for worker in sampled if worker.mean_cpu_cores is not None]
        return sum(busy) / self.settings.ranks_on_host if busy else None

    @property
    def recorded_wall_ns(self) -> tuple[int, int] | None:
        """When the recording began and ended, wall clock; None where it does not say."""
        start = self.trace.wall_clock_start_ns
        return None if start is None else (start, start + recording_extent(self.trace)[1])
