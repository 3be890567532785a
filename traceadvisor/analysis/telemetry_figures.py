"""Telemetry figures over a time span, from the samples in it."""

from __future__ import annotations

import numpy as np

from traceadvisor.model.arrays import Float64
from traceadvisor.model.spans import SpanSet
from traceadvisor.model.telemetry import (
    ClockEventReason,
    DeviceColumn,
    DeviceTelemetry,
    NodeColumn,
    ProcessColumn,
    Series,
    Telemetry,
    WorkerColumn,
    WorkerTelemetry,
)
from traceadvisor.model.telemetry_window import DeviceWindow, NodeWindow, ProcessWindow, TelemetryWindow, WorkerWindow

THERMAL = ClockEventReason.SW_THERMAL | ClockEventReason.HW_THERMAL
POWER = ClockEventReason.SW_POWER_CAP | ClockEventReason.HW_POWER_BRAKE

ALL_CPUS_PERCENT = 100.0


def telemetry_window(telemetry: Telemetry, when: SpanSet) -> TelemetryWindow:
    """Return the figures over a time span, wall clock, nanoseconds since the epoch."""
    return TelemetryWindow(
        devices=tuple(device_window(device, when) for device in telemetry.devices),
        node=_node(telemetry, when),
        processes=_processes(telemetry, when),
    )


def device_window(device: DeviceTelemetry, when: SpanSet) -> DeviceWindow:
    """Return one device's figures over a time span, wall clock, nanoseconds since the epoch."""
    within = _Within(device.series, when)
    reasons = within.known(DeviceColumn.CLOCK_EVENT_REASONS).astype(np.int64)
    return DeviceWindow(
        uuid=device.uuid,
        sample_count=within.sample_count,
        mean_utilization_share=_over(within.mean(DeviceColumn.UTILIZATION_PERCENT), 100),
        peak_utilization_share=_over(within.peak(DeviceColumn.UTILIZATION_PERCENT), 100),
        mean_memory_utilization_share=_over(within.mean(DeviceColumn.MEMORY_UTILIZATION_PERCENT), 100),
        peak_memory_bytes=within.peak(DeviceColumn.MEMORY_USED_BYTES),
        peak_memory_share=_over(within.peak(DeviceColumn.MEMORY_USED_BYTES), device.memory_bytes),
        peak_foreign_memory_bytes=within.peak(DeviceColumn.FOREIGN_MEMORY_BYTES),
        mean_power_watts=within.mean(DeviceColumn.POWER_WATTS),
        mean_power_share=_mean(_power_shares(device, when)),
        mean_temperature_celsius=within.mean(DeviceColumn.TEMPERATURE_CELSIUS),
        peak_temperature_celsius=within.peak(DeviceColumn.TEMPERATURE_CELSIUS),
        mean_sm_clock_mhz=within.mean(DeviceColumn.SM_CLOCK_MHZ),
        mean_sm_clock_share=_over(within.mean(DeviceColumn.SM_CLOCK_MHZ), device.max_sm_clock_mhz),
        mean_memory_clock_mhz=within.mean(DeviceColumn.MEMORY_CLOCK_MHZ),
        clock_event_shares=_shares_by_reason(reasons) if reasons.size else None,
        thermal_share=_share_of(reasons, THERMAL),
        power_share=_share_of(reasons, POWER),
        mean_pcie_tx_bytes_per_s=within.mean(DeviceColumn.PCIE_TX_BYTES_PER_S),
        mean_pcie_rx_bytes_per_s=within.mean(DeviceColumn.PCIE_RX_BYTES_PER_S),
        best_link=_best_link(within),
    )


def _node(telemetry: Telemetry, when: SpanSet) -> NodeWindow:
    within = _Within(telemetry.node, when)
    available_bytes = _least(within.known(NodeColumn.MEMORY_AVAILABLE_BYTES))
    return NodeWindow(
        sample_count=within.sample_count,
        mean_cpu_share=_over(within.mean(NodeColumn.CPU_PERCENT), ALL_CPUS_PERCENT),
        peak_cpu_share=_over(within.peak(NodeColumn.CPU_PERCENT), ALL_CPUS_PERCENT),
        mean_iowait_share=_over(within.mean(NodeColumn.IOWAIT_PERCENT), ALL_CPUS_PERCENT),
        least_available_memory_bytes=available_bytes,
        least_available_memory_share=_over(available_bytes, telemetry.memory_bytes),
        peak_swap_bytes=within.peak(NodeColumn.SWAP_USED_BYTES),
        mean_disk_read_bytes_per_s=within.mean(NodeColumn.DISK_READ_BYTES_PER_S),
        mean_disk_write_bytes_per_s=within.mean(NodeColumn.DISK_WRITE_BYTES_PER_S),
        mean_load=within.mean(NodeColumn.LOAD_1MIN),
        swap_growth_bytes=_growth(within.known(NodeColumn.SWAP_USED_BYTES)),
    )


def _processes(telemetry: Telemetry, when: SpanSet) -> ProcessWindow:
    within = _Within(telemetry.processes, when)
    cores = _over(within.mean(ProcessColumn.CPU_PERCENT), 100)
    group_bytes = within.peak(ProcessColumn.GROUP_MEMORY_BYTES)
    limits = [telemetry.cpu_count, telemetry.cpu_affinity, telemetry.cpu_quota]
    workers = [_worker(worker, when) for worker in telemetry.workers]
    sampled = [worker for worker in workers if worker.mean_cpu_cores is not None]
    return ProcessWindow(
        sample_count=within.sample_count,
        peak_process_count=within.peak(ProcessColumn.PROCESS_COUNT),
        mean_cpu_cores=cores,
        granted_cpu_share=_over(cores, min((limit for limit in limits if limit), default=None)),
        peak_rss_bytes=within.peak(ProcessColumn.RSS_BYTES),
        mean_read_bytes_per_s=within.mean(ProcessColumn.READ_BYTES_PER_S),
        mean_write_bytes_per_s=within.mean(ProcessColumn.WRITE_BYTES_PER_S),
        workers=tuple(sorted(sampled, key=lambda worker: -(worker.mean_cpu_cores or 0))),
        mean_throttled_share=_over(within.mean(ProcessColumn.THROTTLED_PERCENT), 100),
        peak_group_memory_bytes=group_bytes,
        peak_group_memory_share=_over(group_bytes, telemetry.group_memory_limit_bytes),
    )


def _worker(worker: WorkerTelemetry, when: SpanSet) -> WorkerWindow:
    within = _Within(worker.series, when)
    return WorkerWindow(worker.pid, worker.name, _over(within.mean(WorkerColumn.CPU_PERCENT), 100))


class _Within:
    """The samples of a series in a time span."""

    def __init__(self, series: Series, when: SpanSet) -> None:
        self._series = series
        self._rows = np.flatnonzero(when.contains(series.time_ns))
        known = np.zeros(self._rows.size, dtype=np.bool_)
        for figures in series.figures.values():
            known |= np.isfinite(figures[self._rows])
        self.sample_count = int(known.sum())

    def known(self, name: str) -> Float64:
        """Return a figure's known samples."""
        figures = self._series.figures.get(name)
        return np.empty(0) if figures is None else _finite(figures[self._rows])

    def mean(self, name: str) -> float | None:
        """Return the mean; None without samples, like the methods below."""
        return _mean(self.known(name))

    def peak(self, name: str) -> float | None:
        """Return the maximum."""
        known = self.known(name)
        return float(known.max()) if known.size else None


def _power_shares(device: DeviceTelemetry, when: SpanSet) -> Float64:
    """Return power over the power limit; the limit is sampled less often and holds until its next sample."""
    series = device.series
    limits = series.figures.get(DeviceColumn.POWER_LIMIT_WATTS, np.full(series.time_ns.size, np.nan))
    initial = np.nan if device.power_limit_watts is None else device.power_limit_watts
    limits = np.concatenate(([initial], limits))
    latest = np.maximum.accumulate(np.where(np.isfinite(limits), np.arange(limits.size), 0))
    in_force = limits[latest][1:]
    within = when.contains(series.time_ns)
    power_watts = series.figures.get(DeviceColumn.POWER_WATTS, np.full(series.time_ns.size, np.nan))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _finite(power_watts[within] / in_force[within])


def _shares_by_reason(reasons: np.typing.NDArray[np.int64]) -> dict[ClockEventReason, float]:
    held = {reason: float(np.mean((reasons & reason.value) != 0)) for reason in ClockEventReason}
    return {reason: share for reason, share in held.items() if share}


def _share_of(reasons: np.typing.NDArray[np.int64], any_of: ClockEventReason) -> float | None:
    return float(np.mean((reasons & any_of.value) != 0)) if reasons.size else None


def _best_link(within: _Within) -> tuple[int, int] | None:
    generation, width = within.peak(DeviceColumn.LINK_GENERATION), within.peak(DeviceColumn.LINK_WIDTH)
    return None if generation is None or width is None else (int(generation), int(width))


def _finite(figures: Float64) -> Float64:
    return figures[np.isfinite(figures)]


def _mean(known: Float64) -> float | None:
    return float(known.mean()) if known.size else None


def _least(known: Float64) -> float | None:
    return float(known.min()) if known.size else None


def _growth(known: Float64) -> float | None:
    return float(known.max() - known[0]) if known.size else None


def _over(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
