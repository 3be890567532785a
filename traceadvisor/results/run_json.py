"""A captured run and its machine in the terms of the JSON report."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from traceadvisor.model.report import Recording
from traceadvisor.model.run import LoaderSettings, Run, RunSettings, steps_by_state
from traceadvisor.model.telemetry import DeviceTelemetry, Telemetry
from traceadvisor.model.telemetry_window import DeviceWindow, NodeWindow, ProcessWindow
from traceadvisor.results.run_document import (
    DeviceTelemetryDocument,
    HostTelemetryDocument,
    LoaderSettingsDocument,
    ProcessTelemetryDocument,
    RunDocument,
    RunStepsDocument,
    SettingsDocument,
    TelemetryDocument,
    WallClockRangeDocument,
    WorkerTelemetryDocument,
)

_NS_PER_US = 1000


def run_document(run: Run | None) -> RunDocument | None:
    """None for a recording that was not captured."""
    if run is None:
        return None
    return RunDocument(
        command=list(run.command),
        ending=run.ending,
        step_count=len(run.steps),
        steps_by_state={
            row.state: RunStepsDocument(
                count=row.count,
                median_us=row.median_ns / _NS_PER_US,
                mean_us=row.mean_ns / _NS_PER_US,
                longest_us=row.longest_ns / _NS_PER_US,
                mean_loader_us=row.mean_loader_ns / _NS_PER_US,
            )
            for row in steps_by_state(run)
        },
        settings=_settings(run.settings),
    )


def telemetry_document(recording: Recording) -> TelemetryDocument | None:
    """None without samples, or without undisturbed steps to take them over."""
    telemetry = recording.captured.telemetry if recording.captured else None
    window = recording.telemetry
    if telemetry is None or window is None:
        return None
    return TelemetryDocument(
        devices=[_device(*pair) for pair in zip(telemetry.devices, window.devices, strict=True)],
        devices_missing=telemetry.devices_missing,
        host=_host(telemetry, window.node),
        processes=_processes(window.processes),
    )


def wall_clock_range(wall_ns: tuple[int, int] | None) -> WallClockRangeDocument | None:
    """None where it is not known."""
    return (
        None if wall_ns is None else WallClockRangeDocument(start=wall_ns[0] / _NS_PER_US, end=wall_ns[1] / _NS_PER_US)
    )


def _settings(settings: RunSettings) -> SettingsDocument:
    return SettingsDocument(
        loader=None if settings.loader is None else _loader(settings.loader),
        optimizer=settings.optimizer,
        autocast_dtype=settings.autocast_dtype,
        grad_scaler=settings.grad_scaler,
        matmul_tf32=settings.matmul_tf32,
        cudnn_tf32=settings.cudnn_tf32,
        cudnn_benchmark=settings.cudnn_benchmark,
        torch_version=settings.torch_version,
        cuda_version=settings.cuda_version,
        python_version=settings.python_version,
        cpu_count=settings.cpu_count,
        cpu_quota_cores=settings.cpu_quota,
        torch_threads=settings.torch_threads,
        detect_anomaly=settings.detect_anomaly,
        cuda_sync_debug_mode=settings.cuda_sync_debug_mode,
        gc_share=settings.gc_share,
        gc_longest_us=None if settings.gc_longest_ns is None else settings.gc_longest_ns / 1000,
        own_profiler_share=settings.own_profiler_share,
        environment=dict(settings.environment),
    )


def _loader(loader: LoaderSettings) -> LoaderSettingsDocument:
    return LoaderSettingsDocument(
        batch_size=loader.batch_size,
        num_workers=loader.worker_count,
        prefetch_factor=loader.prefetch_factor,
        pin_memory=loader.pin_memory,
        persistent_workers=loader.persistent_workers,
        drop_last=loader.drop_last,
        dataset_length=loader.dataset_length,
        sample_count=loader.sample_count,
        batch_count=loader.batch_count,
        sampler=loader.sampler,
        file=loader.location.file if loader.location else None,
        line=loader.location.line if loader.location else None,
    )


def _device(device: DeviceTelemetry, window: DeviceWindow) -> DeviceTelemetryDocument:
    shares = window.clock_event_shares
    return DeviceTelemetryDocument(
        name=device.name,
        cuda_index=device.cuda_index,
        memory_bytes=device.memory_bytes,
        power_limit_watts=device.power_limit_watts,
        default_power_limit_watts=device.default_power_limit_watts,
        max_power_limit_watts=device.max_power_limit_watts,
        slowdown_celsius=device.slowdown_celsius,
        max_sm_clock_mhz=device.max_sm_clock_mhz,
        clock_event_shares=None
        if shares is None
        else {str(reason.name).lower(): share for reason, share in shares.items()},
        **_same(window, "clock_event_shares", "best_link"),
    )


def _host(telemetry: Telemetry, window: NodeWindow) -> HostTelemetryDocument:
    return HostTelemetryDocument(
        name=telemetry.host, cpu_count=telemetry.cpu_count, memory_bytes=telemetry.memory_bytes, **_same(window)
    )


def _processes(window: ProcessWindow) -> ProcessTelemetryDocument:
    workers = [WorkerTelemetryDocument(**_same(worker)) for worker in window.workers]
    return ProcessTelemetryDocument(workers=workers, **_same(window, "workers"))


def _same(window: Any, *but: str) -> dict[str, Any]:
    """The fields that the document calls as the model does: their units are in their names already."""
    return {field.name: getattr(window, field.name) for field in fields(window) if field.name not in but}
