"""Facts of a built trace with what a capture would know beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tests.build import TraceBuilder
from tests.rules.judging import as_far_as_simulated
from traceadvisor.facts import Facts
from traceadvisor.judging.run_rule import run_rule
from traceadvisor.model.events import DEVICE_WORK
from traceadvisor.model.findings import Clear, Finding, Found, Location, RuleOutcome
from traceadvisor.model.run import LoaderSettings, Run, RunSettings, StepState, TimedBatch, TimedStep
from traceadvisor.model.telemetry import DeviceTelemetry, Series
from traceadvisor.model.telemetry_window import (
    DeviceWindow,
    NodeWindow,
    ProcessWindow,
    TelemetryWindow,
    WorkerWindow,
)
from traceadvisor.rules.base import Rule

LOOP = Location("train.py", 41, "main")

NODE = NodeWindow(
    sample_count=50,
    mean_cpu_share=0.4,
    peak_cpu_share=0.5,
    mean_iowait_share=0.0,
    least_available_memory_bytes=None,
    least_available_memory_share=None,
    peak_swap_bytes=None,
    mean_disk_read_bytes_per_s=None,
    mean_disk_write_bytes_per_s=None,
    mean_load=None,
)
PROCESSES = ProcessWindow(
    sample_count=50,
    peak_process_count=None,
    mean_cpu_cores=None,
    granted_cpu_share=None,
    peak_rss_bytes=None,
    mean_read_bytes_per_s=None,
    mean_write_bytes_per_s=None,
    workers=(),
)
DEVICE = DeviceWindow(
    uuid="GPU-0",
    sample_count=50,
    mean_utilization_share=None,
    peak_utilization_share=None,
    mean_memory_utilization_share=None,
    peak_memory_bytes=None,
    peak_memory_share=None,
    peak_foreign_memory_bytes=None,
    mean_power_watts=None,
    mean_power_share=None,
    mean_temperature_celsius=None,
    peak_temperature_celsius=None,
    mean_sm_clock_mhz=None,
    mean_sm_clock_share=None,
    mean_memory_clock_mhz=None,
    clock_event_shares=None,
    thermal_share=None,
    power_share=None,
    mean_pcie_tx_bytes_per_s=None,
    mean_pcie_rx_bytes_per_s=None,
    best_link=None,
)

SAMPLED_DEVICE = DeviceTelemetry(
    uuid="GPU-0",
    name=None,
    index=0,
    memory_bytes=None,
    power_limit_watts=None,
    max_link=None,
    series=Series(np.empty(0, dtype=np.int64), {}),
    cuda_index=0,
)


def workers(*cores: float) -> tuple[WorkerWindow, ...]:
    """Loader workers by the cores each keeps busy."""
    return tuple(WorkerWindow(number, None, busy) for number, busy in enumerate(cores))


def waiting(wait_us: float) -> TraceBuilder:
    """A step of 100 us that begins with a wait for its batch; an operator takes the rest."""
    return TraceBuilder().step(0, 0, 100).loader(0, wait_us).op("aten::mm", wait_us, 100)


class Captured:
    """A built trace and what is known of its run; changes are named where they are made."""

    def __init__(self, builder: TraceBuilder, folder: Path) -> None:
        self._trace = builder.trace(folder)
        self._settings = RunSettings(cpu_count=8)
        self._node, self._processes, self._device = NODE, PROCESSES, DEVICE
        self._run = Run(("train.py",), "ran to its end", (), self._settings, None)
        self._sampled_device: DeviceTelemetry | None = None

    def loader(self, *, workers: int | None = None, batch: int | None = None) -> Captured:
        """The loader's settings."""
        self._settings = replace(
            self._settings, loader=LoaderSettings(batch_size=batch, worker_count=workers, location=LOOP)
        )
        return self

    def cores(self, quota: float) -> Captured:
        """The cores the process may use."""
        self._settings = replace(self._settings, cpu_quota=quota)
        return self

    def sampled(
        self,
        *,
        cpu: float | None = None,
        iowait: float | None = None,
        granted: float | None = None,
        busy_workers: tuple[WorkerWindow, ...] = (),
    ) -> Captured:
        """The host's samples."""
        self._node = replace(self._node, mean_cpu_share=cpu, mean_iowait_share=iowait)
        self._processes = replace(self._processes, granted_cpu_share=granted, workers=busy_workers)
        return self

    def device(
        self, *, thermal: float | None = None, clock: float | None = None, memory: float | None = None
    ) -> Captured:
        """The device's samples."""
        self._device = replace(self._device, thermal_share=thermal, mean_sm_clock_share=clock, peak_memory_bytes=memory)
        return self

    def with_loader(self, **changes: Any) -> Captured:
        """Changes of the loader's settings."""
        loader = self._settings.loader or LoaderSettings(location=LOOP)
        self._settings = replace(self._settings, loader=replace(loader, **changes))
        return self

    def with_settings(self, **changes: Any) -> Captured:
        """Changes of the run's settings."""
        self._settings = replace(self._settings, **changes)
        return self

    def with_run(self, **changes: Any) -> Captured:
        """Changes of the run."""
        self._run = replace(self._run, **changes)
        return self

    def with_steps(
        self, loader_us: Sequence[float], *, step_us: float = 100, begun: Mapping[int, float] = MappingProxyType({})
    ) -> Captured:
        """Undisturbed steps by their time in the loader, which comes on top of the rest of the step.

        ``begun`` tells which steps are the first of an epoch, and how many microseconds it took to begin it.
        """
        steps = []
        at_ns = 10**18
        for number, waited_us in enumerate(loader_us):
            duration_ns = int((step_us + waited_us) * 1000)
            begun_ns = int(begun.get(number, 0) * 1000)
            loader_ns = int(waited_us * 1000)
            steps.append(TimedStep(number, at_ns, duration_ns, loader_ns, 1, StepState.PLAIN, begun_ns))
            at_ns += duration_ns
        return self.with_run(steps=tuple(steps))

    def made(
        self,
        cpu_us: float = 0,
        wait_us: float = 0,
        *,
        count: int = 40,
        collate_us: float = 0,
        core_wait_us: float | None = 0,
        slow: Mapping[int, float] = MappingProxyType({}),
        workers: Sequence[int | None] = (0,),
    ) -> Captured:
        """Timed batches: CPU time in the fetch, waiting in it, CPU time in the collating.

        ``slow`` tells which batches wait longer, and for how many microseconds more; ``workers`` take turns.
        """
        batches = [
            TimedBatch(
                workers[number % len(workers)],
                10**18 + number * 1000,
                round((cpu_us + wait_us + slow.get(number, 0) + (core_wait_us or 0)) * 1000),
                round(cpu_us * 1000),
                round(collate_us * 1000),
                round(collate_us * 1000),
                None if core_wait_us is None else round(core_wait_us * 1000),
                round((cpu_us + collate_us) * 1000),
            )
            for number in range(count)
        ]
        return self.with_run(batches=tuple(batches))

    def spinning(self, threads: int) -> Captured:
        """Timed batches beside which the other threads of the process spin."""
        batches = (replace(one, process_cpu_ns=threads * one.process_cpu_ns) for one in self._run.batches)
        return self.with_run(batches=tuple(batches))

    def sending(self, sends_us: int) -> Captured:
        """Timed batches that a thread of the worker sends, and nothing computes beside the loading thread."""
        batches = (
            replace(one, process_cpu_ns=one.process_cpu_ns + sends_us * 1_000, threads_cpu_ns=0)
            for one in self._run.batches
        )
        return self.with_run(batches=tuple(batches))

    def with_node(self, **changes: Any) -> Captured:
        """Changes of the host's figures."""
        self._node = replace(self._node, **changes)
        return self

    def with_processes(self, **changes: Any) -> Captured:
        """Changes of the training processes' figures."""
        self._processes = replace(self._processes, **changes)
        return self

    def with_device(self, **changes: Any) -> Captured:
        """Changes of the device's figures."""
        self._device = replace(self._device, **changes)
        return self

    def with_sampled_device(self, **changes: Any) -> Captured:
        """What does not change about the device, as it was sampled."""
        self._sampled_device = replace(SAMPLED_DEVICE, **changes)
        return self

    def facts(self) -> Facts:
        """The facts as a capture would give them, as far as the steps can be simulated."""
        return as_far_as_simulated(self.simulated_facts())

    def simulated_facts(self) -> Facts:
        """The facts as a capture would give them."""
        has_device = self._trace.events.rows(*DEVICE_WORK).size > 0
        run = replace(self._run, settings=self._settings)
        facts = Facts(self._trace, 0 if has_device else None, "run/rank0", run)
        vars(facts.run)["telemetry"] = TelemetryWindow((self._device,), self._node, self._processes)
        vars(facts.run)["device_telemetry"] = self._device
        vars(facts.run)["sampled_device"] = self._sampled_device
        return facts

    def outcome(self, rule: Rule) -> RuleOutcome:
        """What comes of a rule."""
        return run_rule(rule, self.facts())

    def finding(self, rule: Rule) -> Finding:
        """What the rule finds; fails where it finds nothing."""
        outcome = self.outcome(rule)
        assert isinstance(outcome, Found), outcome
        return outcome.finding

    def clear(self, rule: Rule) -> Clear:
        """The figure with which the rule is clear; fails where it is not."""
        outcome = self.outcome(rule)
        assert isinstance(outcome, Clear), outcome
        return outcome

    def is_found(self, rule: Rule) -> bool:
        """Whether the rule finds something; fails where it could not look."""
        outcome = self.outcome(rule)
        assert isinstance(outcome, Found | Clear), outcome
        return isinstance(outcome, Found)
