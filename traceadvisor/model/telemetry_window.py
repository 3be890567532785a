"""Telemetry over a period of time: of each device, of the host, of the training processes.

Each figure is over the samples in the period that have it, with equal weights; None where no sample has it.
"""

from __future__ import annotations

from collections.abc import Mapping

from traceadvisor.frozen import frozen
from traceadvisor.model.telemetry import ClockEventReason


@frozen
class DeviceWindow:
    """One device over a period of time."""

    uuid: str
    sample_count: int
    """Samples in the period with any figure."""

    mean_utilization_share: float | None
    peak_utilization_share: float | None
    """Highest share of a driver period (1/6 s to 1 s) in which a kernel ran; also includes time right before it."""

    mean_memory_utilization_share: float | None
    peak_memory_bytes: float | None
    peak_memory_share: float | None
    """Peak as a share of the device's memory."""

    peak_foreign_memory_bytes: float | None
    """Peak memory of processes other than the training."""

    mean_power_watts: float | None
    mean_power_share: float | None
    """Mean power as a share of the limit at each sample."""

    mean_temperature_celsius: float | None
    peak_temperature_celsius: float | None
    mean_sm_clock_mhz: float | None
    mean_sm_clock_share: float | None
    """Mean clock as a share of the device's highest."""

    mean_memory_clock_mhz: float | None
    clock_event_shares: Mapping[ClockEventReason, float] | None
    """Share of the samples in which each reason slowed the clocks, for reasons that occurred; several can at once."""

    thermal_share: float | None
    """Share of the samples with the device slowed by heat."""

    power_share: float | None
    """Share of the samples with the device slowed by its power limit or a power brake."""

    mean_pcie_tx_bytes_per_s: float | None
    mean_pcie_rx_bytes_per_s: float | None
    best_link: tuple[int, int] | None
    """Highest PCIe generation and width. Not the lowest: an idle device lowers its link."""


@frozen
class NodeWindow:
    """The whole host over a period of time."""

    sample_count: int
    mean_cpu_share: float | None
    """Mean share of all CPUs in use."""

    peak_cpu_share: float | None
    mean_iowait_share: float | None
    least_available_memory_bytes: float | None
    least_available_memory_share: float | None
    peak_swap_bytes: float | None
    mean_disk_read_bytes_per_s: float | None
    mean_disk_write_bytes_per_s: float | None
    mean_load: float | None
    swap_growth_bytes: float | None = None
    """Swap at its peak less that of the first sample."""


@frozen
class WorkerWindow:
    """One child of the training processes."""

    pid: int
    name: str | None
    mean_cpu_cores: float | None


@frozen
class ProcessWindow:
    """The training processes and their children."""

    sample_count: int
    peak_process_count: float | None
    mean_cpu_cores: float | None
    """Mean number of CPU cores in use."""

    granted_cpu_share: float | None
    """Share of the cores they may use: the least of the host's, the affinity's and the quota's."""

    peak_rss_bytes: float | None
    mean_read_bytes_per_s: float | None
    mean_write_bytes_per_s: float | None
    workers: tuple[WorkerWindow, ...]
    """The busiest children, busiest first."""

    mean_throttled_share: float | None = None
    """Share of the scheduler's periods in which the CPU quota was used up; None without a quota."""

    peak_group_memory_bytes: float | None = None
    peak_group_memory_share: float | None = None
    """Peak as a share of the control group's limit; None without a limit."""


@frozen
class TelemetryWindow:
    """All telemetry over a period of time."""

    devices: tuple[DeviceWindow, ...]
    """In the order of :attr:`Telemetry.devices`."""

    node: NodeWindow
    processes: ProcessWindow

    def others_cores(self, host_cores: int | None) -> float | None:
        """Cores that programs besides the training keep busy on a host with ``host_cores``; None if unknown."""
        own, share = self.processes.mean_cpu_cores, self.node.mean_cpu_share
        return None if own is None or share is None or not host_cores else max(share * host_cores - own, 0.0)
