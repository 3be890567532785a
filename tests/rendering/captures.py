"""Reports of captures built by hand: with GPU samples, with CPU samples only, and with a rank without a recording.

A run of a minute: undisturbed steps of 168 ms, profiler at its thirtieth second, a stall at the export.
"""

from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from tests.build_report import MS, SHARES_NO_WORKERS, SHARES_ON_HOST, device_recording, host_timeline, one_recording
from tests.rendering.samples import (
    CAPACITY_BYTES,
    START_NS,
    S,
    figures,
    telemetry_of_host,
    telemetry_with_devices,
)
from traceadvisor.model.findings import Location
from traceadvisor.model.health import Health
from traceadvisor.model.report import DeviceFigures, Recording, Report, Source, SourceKind
from traceadvisor.model.run import LoaderSettings, Run, RunSettings, StepState, TimedStep
from traceadvisor.model.telemetry import Telemetry
from traceadvisor.model.telemetry_window import TelemetryWindow
from traceadvisor.model.trace import Device, Distributed


def captured() -> Report:
    """One rank with complete data."""
    device = Device(0, "NVIDIA H100 80GB HBM3", CAPACITY_BYTES, (9, 0), 132)
    recording = device_recording("train/rank0/cycle0", SHARES_NO_WORKERS, step_ms=177.6, device=device)
    return _report(_of_run(recording, run(telemetry_with_devices(1)), figures(1)))


def captured_on_host() -> Report:
    """One rank on a machine without a GPU."""
    recording = replace(
        device_recording("mnist/rank0/cycle0", SHARES_ON_HOST, step_ms=177.6, device=Device(0)),
        device=None,
        figures=DeviceFigures(None, None, None),
        kernels=(),
        timeline=host_timeline(),
    )
    return _report(_of_run(recording, run(telemetry_of_host()), figures(0)))


def captured_ranks() -> Report:
    """Two cycles of one rank, and a second rank whose script ended before its recording."""
    telemetry = telemetry_with_devices(2)
    first = _of_run(
        replace(
            device_recording("ddp/rank0/cycle0", SHARES_NO_WORKERS, step_ms=177.6, device=Device(0, "NVIDIA H100")),
            distributed=Distributed(0, 2, "nccl"),
            worker="rank0",
        ),
        run(telemetry),
        figures(2),
    )
    second = replace(first, id="ddp/rank0/cycle1", cycle=1, recorded_wall_ns=(START_NS + 46 * S, START_NS + 48 * S))
    return _report(first, second, silent(telemetry))


def silent(telemetry: Telemetry | None) -> Recording:
    """A rank that ended with an exception before the profiler started."""
    recording = device_recording("ddp/rank1", SHARES_NO_WORKERS, step_ms=177.6, device=Device(0))
    failed = replace(run(telemetry), ending="ended with an exception (1)")
    failed = replace(failed, steps=tuple(step for step in failed.steps[:40]), settings=RunSettings())
    return replace(
        _of_run(recording, failed, None),
        worker="rank1",
        path=Path("/home/ada/runs/2026-11-20T10-15-00-train/manifest.json"),
        device=None,
        steps=(),
        mean_step_ns=None,
        median_step_ns=None,
        samples_per_s=None,
        mean_breakdown=None,
        overlaps={},
        figures=DeviceFigures(None, None, None),
        timeline=None,
        kernels=(),
        operators=(),
        loader_kinds=(),
        recorded_wall_ns=None,
    )


def _report(*recordings: Recording) -> Report:
    source = Source((Path("/home/ada/runs/2026-11-20T10-15-00-train"),), SourceKind.CAPTURE)
    findings = tuple(replace(row, recording_ids=(recordings[0].id,)) for row in one_recording().findings)
    return replace(
        one_recording(), source=source, health=Health(events_read=184_213), recordings=recordings, findings=findings
    )


def _of_run(recording: Recording, captured_run: Run, window: TelemetryWindow | None) -> Recording:
    return replace(
        recording,
        path=Path("/home/ada/runs/2026-11-20T10-15-00-train/node7_2417.1795225520.pt.trace.json.gz"),
        undisturbed_median_step_ns=168.0 * MS,
        samples_per_s=32 / 0.168,
        captured=captured_run,
        recorded_wall_ns=recorded(captured_run),
        telemetry=window,
    )


def run(telemetry: Telemetry | None) -> Run:
    """The complete data of a captured rank."""
    return Run(
        command=("train.py", "--data", "/home/ada/imagenet", "--api-key", "correct-horse-battery", "--epochs", "1"),
        ending="ran to its end",
        steps=tuple(steps()),
        settings=settings(),
        telemetry=telemetry,
    )


def steps() -> list[TimedStep]:
    """A long first step, 150 undisturbed ones, the recording with its stalls, 120 more and a validation."""
    states = chain(
        repeat(StepState.PLAIN, 151),
        (StepState.STALLED,),
        repeat(StepState.WARMUP, 6),
        repeat(StepState.SETTLING, 2),
        repeat(StepState.RECORDED, 8),
        (StepState.STALLED,),
        repeat(StepState.PLAIN, 120),
        repeat(StepState.OTHER, 20),
    )
    lengths_ms = {
        StepState.RECORDED: 177.6,
        StepState.WARMUP: 172.0,
        StepState.SETTLING: 121.0,
        StepState.STALLED: 1_900.0,
        StepState.OTHER: 60.0,
    }
    timed: list[TimedStep] = []
    at = START_NS + 4 * S
    for index, state in enumerate(states):
        wave = 6 * np.sin(index / 5) + 11 * (index % 17 == 0)
        length = (
            2_400.0 if index == 0 else 1_900.0 if state is StepState.STALLED else lengths_ms.get(state, 168.0) + wave
        )
        loader = 0.0 if state is StepState.OTHER else 5.0 if state is StepState.SETTLING else 56.0 + wave
        timed.append(TimedStep(index, at, round(length * MS), round(loader * MS), int(loader > 0), state))
        at += round(length * MS)
    return timed


def recorded(captured_run: Run) -> tuple[int, int]:
    """The recorded window."""
    states = (StepState.SETTLING, StepState.RECORDED)
    within = [step for step in captured_run.steps if step.state in states]
    return (within[0].start_ns, within[-1].start_ns + within[-1].duration_ns) if within else (START_NS, START_NS)


def settings() -> RunSettings:
    """Complete settings."""
    loader = LoaderSettings(
        batch_size=32,
        worker_count=4,
        prefetch_factor=2,
        pin_memory=True,
        persistent_workers=False,
        drop_last=True,
        dataset_length=50_000,
        location=Location("/home/ada/src/train.py", 41, "main"),
    )
    return RunSettings(
        loader=loader,
        optimizer="AdamW (fused)",
        autocast_dtype="bfloat16",
        grad_scaler=False,
        matmul_tf32=True,
        cudnn_tf32=True,
        cudnn_benchmark=False,
        torch_version="2.9.1+cu128",
        cuda_version="12.8",
        python_version="3.12.4",
        cpu_count=64,
        cpu_quota=15.5,
    )
