"""What telemetry says of a stretch of time: of each device, of the host, of the training processes.

Every figure is over the samples in the stretch that hold it, each counting the same; None where no sample does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from traceadvisor.model.telemetry import ClockEventReason


@dataclass(frozen=True, slots=True)
class DeviceWindow:
    """One device over a stretch of time."""

    uuid: str
    sample_count: int
    """Samples in the stretch that hold any figure."""

    mean_utilization_share: float | None
    peak_utilization_share: float | None
    """Share of the driver's own periods (1/6 s to 1 s) in which a kernel ran: a stretch shorter than these is blurred
    with what came before it."""

    mean_memory_utilization_share: float | None
    peak_memory_bytes: float | None
    peak_memory_share: float | None
    """Of the device's capacity."""

    peak_foreign_memory_bytes: float | None
    """Held by processes that are not the training's."""

    mean_power_watts: float | None
    mean_power_share: float | None
    """Of the limit in force at each sample."""

    mean_temperature_celsius: float | None
    peak_temperature_celsius: float | None
    mean_sm_clock_mhz: float | None
    mean_sm_clock_share: float | None
    """Of the highest the device is capable of."""

    mean_memory_clock_mhz: float | None
    clock_event_shares: Mapping[ClockEventReason, float] | None
    """Share of the samples in which each reason held, of those that ever held; several may hold at once."""

    thermal_share: float | None
    """Share of the samples in which heat slowed the device down, by software or hardware."""

    power_share: float | None
    """Share of the samples in which its power limit or a power brake slowed it down."""

    mean_pcie_tx_bytes_per_s: float | None
    mean_pcie_rx_bytes_per_s: float | None
    best_link: tuple[int, int] | None
    """Highest PCIe generation and width seen: an idle device lowers its link, so that the lowest says nothing."""


@dataclass(frozen=True, slots=True)
class NodeWindow:
    """The whole host over a stretch of time."""

    sample_count: int
    mean_cpu_share: float | None
    """Of all CPUs."""

    peak_cpu_share: float | None
    mean_iowait_share: float | None
    least_available_memory_bytes: float | None
    least_available_memory_share: float | None
    peak_swap_bytes: float | None
    mean_disk_read_bytes_per_s: float | None
    mean_disk_write_bytes_per_s: float | None
    mean_load: float | None
    swap_growth_bytes: float | None = None
    """From the first sample to the fullest: what was in swap before says nothing of this run."""


@dataclass(frozen=True, slots=True)
class WorkerWindow:
    """One child of the training processes over a stretch of time."""

    pid: int
    name: str | None
    mean_cpu_cores: float | None


@dataclass(frozen=True, slots=True)
class ProcessWindow:
    """The training processes and their children over a stretch of time."""

    sample_count: int
    peak_process_count: float | None
    mean_cpu_cores: float | None
    """How many cores' worth of CPU time they took."""

    granted_cpu_share: float | None
    """Of the cores they may use: the least of the host's, the affinity's and the quota's."""

    peak_rss_bytes: float | None
    mean_read_bytes_per_s: float | None
    mean_write_bytes_per_s: float | None
    workers: tuple[WorkerWindow, ...]
    """Those sampled in the stretch, the busiest first."""

    mean_throttled_share: float | None = None
    """Of the scheduler's periods, those in which the CPU quota was used up; None where there is no quota."""

    peak_group_memory_bytes: float | None = None
    peak_group_memory_share: float | None = None
    """Of what the control group grants; None where it sets no limit."""


@dataclass(frozen=True, slots=True)
class TelemetryWindow:
    """All that telemetry says of a stretch of time."""

    devices: tuple[DeviceWindow, ...]
    """As :attr:`Telemetry.devices`."""

    node: NodeWindow
    processes: ProcessWindow
