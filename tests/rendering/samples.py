"""One minute of telemetry built by hand, with its figures."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from traceadvisor.model.arrays import Float64
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

S = 1_000_000_000
GIB = 1 << 30
START_NS = 1_795_225_489 * S
CAPACITY_BYTES = 80 * GIB


def telemetry_with_devices(devices: int) -> Telemetry:
    """Ten samples per second for a minute, with a gap from second 20 to 24."""
    return replace(
        telemetry_of_host(), devices=tuple(device_telemetry(place) for place in range(devices)), devices_missing=None
    )


def telemetry_of_host() -> Telemetry:
    """The same telemetry without a GPU."""
    at = times()
    wave = np.sin(at / S)
    node = {
        NodeColumn.CPU_PERCENT: 31 + 8 * wave,
        NodeColumn.IOWAIT_PERCENT: 2 + 2 * np.cos(at / S / 3),
        NodeColumn.MEMORY_AVAILABLE_BYTES: 180.0 * GIB - (at - at[0]) * 0.2,
        NodeColumn.MEMORY_USED_BYTES: 76.0 * GIB + (at - at[0]) * 0.2,
        NodeColumn.SWAP_USED_BYTES: np.zeros(at.size),
        NodeColumn.DISK_READ_BYTES_PER_S: 4.1e8 * (1.2 + wave),
        NodeColumn.DISK_WRITE_BYTES_PER_S: 2e6 * (1 + wave),
        NodeColumn.NETWORK_RECEIVED_BYTES_PER_S: np.full(at.size, 1e6),
        NodeColumn.NETWORK_SENT_BYTES_PER_S: np.full(at.size, 1e5),
        NodeColumn.LOAD_1MIN: np.full(at.size, 19.2),
    }
    processes = {
        ProcessColumn.PROCESS_COUNT: np.full(at.size, 5.0),
        ProcessColumn.CPU_PERCENT: 920 + 300 * wave,
        ProcessColumn.RSS_BYTES: np.full(at.size, 21.4 * GIB),
        ProcessColumn.READ_BYTES_PER_S: 4e8 * (1.2 + wave),
        ProcessColumn.WRITE_BYTES_PER_S: np.zeros(at.size),
    }
    worker = {WorkerColumn.CPU_PERCENT: np.full(at.size, 97.0), WorkerColumn.RSS_BYTES: np.full(at.size, 2.0 * GIB)}
    return Telemetry(
        host="node7",
        devices=(),
        node=series(node),
        processes=series(processes),
        cpu_count=64,
        cpu_quota=15.5,
        memory_bytes=256 * GIB,
        workers=(WorkerTelemetry(4242, "pt_data_worker", series(worker)),),
        devices_missing="no NVIDIA driver answers: NVML Shared Library Not Found",
    )


def device_telemetry(place: int) -> DeviceTelemetry:
    """A GPU near its power limit that is busy two thirds of the time, with one short pause."""
    at = times()
    seconds = (at - START_NS) / S
    busy = np.where(seconds < 4, 0.0, 66 + 20 * np.sin(at / S * 3 + place))
    busy[(seconds > 40) & (seconds < 40.15)] = 0.0
    columns = {column: np.full(at.size, np.nan) for column in DeviceColumn} | {
        DeviceColumn.UTILIZATION_PERCENT: busy,
        DeviceColumn.MEMORY_UTILIZATION_PERCENT: busy / 2,
        DeviceColumn.MEMORY_USED_BYTES: np.where(seconds < 4, 0.6 * GIB, (61.0 - 3 * place) * GIB),
        DeviceColumn.POWER_WATTS: 120 + busy * 6.2,
        DeviceColumn.POWER_LIMIT_WATTS: np.where(np.arange(at.size) % 10 == 0, 700.0, np.nan),
        DeviceColumn.TEMPERATURE_CELSIUS: np.where(np.arange(at.size) % 10 == 0, 40 + seconds * 0.4, np.nan),
        DeviceColumn.SM_CLOCK_MHZ: np.where(busy > 80, 1755.0, 1980.0),
        DeviceColumn.MEMORY_CLOCK_MHZ: np.full(at.size, 2619.0),
    }
    return DeviceTelemetry(
        uuid=f"GPU-{place}",
        name="NVIDIA H100 80GB HBM3",
        index=place,
        memory_bytes=CAPACITY_BYTES,
        power_limit_watts=700.0,
        max_link=(5, 16),
        series=series(columns),
        cuda_index=place,
        max_sm_clock_mhz=1980,
        slowdown_celsius=92,
    )


def times() -> Float64:
    """Wall-clock times of the samples."""
    seconds = np.arange(0, 60, 0.1)
    return START_NS + seconds * S


def series(columns: Mapping[Any, Float64]) -> Series:
    """The columns with four seconds missing, and a row of NaN in their place."""
    at = times().astype(np.int64)
    before, after = np.searchsorted(at, (START_NS + 20 * S, START_NS + 24 * S))

    def broken(values: Float64, middle: float) -> Float64:
        return np.concatenate((values[:before], [middle], values[after:]))

    when = np.concatenate((at[:before], [START_NS + 22 * S], at[after:]))
    return Series(when, {str(name): broken(values, np.nan) for name, values in columns.items()})


def figures(devices: int) -> TelemetryWindow:
    """The figures of the telemetry over the undisturbed steps."""
    node = NodeWindow(
        sample_count=560,
        mean_cpu_share=0.31,
        peak_cpu_share=0.39,
        mean_iowait_share=0.02,
        least_available_memory_bytes=168.8 * GIB,
        least_available_memory_share=0.66,
        peak_swap_bytes=0.0,
        mean_disk_read_bytes_per_s=4.9e8,
        mean_disk_write_bytes_per_s=2.1e6,
        mean_load=19.2,
    )
    processes = ProcessWindow(
        sample_count=560,
        peak_process_count=5,
        mean_cpu_cores=9.2,
        granted_cpu_share=0.594,
        peak_rss_bytes=21.4 * GIB,
        mean_read_bytes_per_s=4.8e8,
        mean_write_bytes_per_s=0.0,
        workers=(WorkerWindow(4242, "pt_data_worker", 0.97),),
    )
    return TelemetryWindow(tuple(device_figures(place) for place in range(devices)), node, processes)


def device_figures(place: int) -> DeviceWindow:
    """The figures of one GPU; None if the driver does not support a figure."""
    return DeviceWindow(
        uuid=f"GPU-{place}",
        sample_count=560,
        mean_utilization_share=0.66,
        peak_utilization_share=0.86,
        mean_memory_utilization_share=0.33,
        peak_memory_bytes=(61.0 - 3 * place) * GIB,
        peak_memory_share=(61.0 - 3 * place) / 80,
        peak_foreign_memory_bytes=None,
        mean_power_watts=529.0,
        mean_power_share=0.756,
        mean_temperature_celsius=52.1,
        peak_temperature_celsius=64.0,
        mean_sm_clock_mhz=1911.0,
        mean_sm_clock_share=0.965,
        mean_memory_clock_mhz=2619.0,
        clock_event_shares={ClockEventReason.GPU_IDLE: 0.01, ClockEventReason.SW_POWER_CAP: 0.31},
        thermal_share=0.0,
        power_share=0.31,
        mean_pcie_tx_bytes_per_s=None,
        mean_pcie_rx_bytes_per_s=None,
        best_link=(5, 16),
    )
