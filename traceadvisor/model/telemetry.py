"""Samples of devices, host and processes over the time of a run, in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # recording uses the columns inside the user's process, where it must not import numpy
    from traceadvisor.model.arrays import Float64, Int64


class DeviceColumn(StrEnum):
    """What is sampled of a device; each is a key of its :attr:`Series.figures` and of a telemetry file."""

    UTILIZATION_PERCENT = "utilization_percent"
    """Share of the driver's last period (1/6 s to 1 s) in which a kernel ran."""

    MEMORY_UTILIZATION_PERCENT = "memory_utilization_percent"
    """Share of that period in which device memory was read or written."""

    MEMORY_USED_BYTES = "memory_used_bytes"
    """By everyone, the driver's own part included."""

    POWER_WATTS = "power_watts"
    POWER_LIMIT_WATTS = "power_limit_watts"
    """The limit in force."""

    TEMPERATURE_CELSIUS = "temperature_celsius"
    SM_CLOCK_MHZ = "sm_clock_mhz"
    MEMORY_CLOCK_MHZ = "memory_clock_mhz"
    CLOCK_EVENT_REASONS = "clock_event_reasons"
    """Bits of :class:`ClockEventReason`."""

    PCIE_TX_BYTES_PER_S = "pcie_tx_bytes_per_s"
    """Sent by the device to the host, over 20 ms."""

    PCIE_RX_BYTES_PER_S = "pcie_rx_bytes_per_s"
    LINK_GENERATION = "link_generation"
    """PCIe generation now: an idle device lowers it to save power."""

    LINK_WIDTH = "link_width"
    PROCESS_COUNT = "process_count"
    """Processes that compute on it, whoever they belong to."""

    OWN_MEMORY_BYTES = "own_memory_bytes"
    """Held by the training processes; None also where the driver's process ids are not those of this container."""

    FOREIGN_MEMORY_BYTES = "foreign_memory_bytes"
    """Held by other processes; None as :attr:`OWN_MEMORY_BYTES` is."""


class NodeColumn(StrEnum):
    """What is sampled of the whole host."""

    CPU_PERCENT = "cpu_percent"
    """Busy time of all CPUs; 100 when every one is busy."""

    IOWAIT_PERCENT = "iowait_percent"
    """Idle time of all CPUs with I/O outstanding; 100 when every one waits."""

    MEMORY_AVAILABLE_BYTES = "memory_available_bytes"
    MEMORY_USED_BYTES = "memory_used_bytes"
    SWAP_USED_BYTES = "swap_used_bytes"
    DISK_READ_BYTES_PER_S = "disk_read_bytes_per_s"
    DISK_WRITE_BYTES_PER_S = "disk_write_bytes_per_s"
    NETWORK_RECEIVED_BYTES_PER_S = "network_received_bytes_per_s"
    NETWORK_SENT_BYTES_PER_S = "network_sent_bytes_per_s"
    LOAD_1MIN = "load_1min"
    """Processes running or waiting to run, averaged over a minute."""


class ProcessColumn(StrEnum):
    """What is sampled of the training processes and their children together."""

    PROCESS_COUNT = "process_count"
    CPU_PERCENT = "cpu_percent"
    """100 is one core; the kernel counts in ticks of 10 ms, so a single sample is coarse and the mean is not."""

    RSS_BYTES = "rss_bytes"
    """Resident memory added up: pages that processes share count once for each."""

    READ_BYTES_PER_S = "read_bytes_per_s"
    """From storage; what the page cache served is not in it."""

    WRITE_BYTES_PER_S = "write_bytes_per_s"
    THROTTLED_PERCENT = "throttled_percent"
    """Share of the scheduler's periods (mostly 100 ms) in which the control group used up its CPU quota and was held
    back; None where there is no quota."""

    GROUP_MEMORY_BYTES = "group_memory_bytes"
    """Held by the whole control group, without what the kernel drops first; None where nothing limits it."""


class WorkerColumn(StrEnum):
    """What is sampled of one of the busiest children."""

    CPU_PERCENT = "cpu_percent"
    RSS_BYTES = "rss_bytes"


class ClockEventReason(IntFlag):
    """Why a device's clocks are not at their highest; the driver's bits."""

    GPU_IDLE = 0x1
    APPLICATION_CLOCKS = 0x2
    """Someone set the clocks."""

    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    """Together with what caused it: :attr:`HW_THERMAL` or :attr:`HW_POWER_BRAKE`."""

    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80
    DISPLAY_CLOCKS = 0x100


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Several figures sampled together; NaN where one was not supported or not read."""

    time_ns: Int64
    """Wall clock, nanoseconds since the epoch, ascending; shape ``(n,)``."""

    figures: Mapping[str, Float64]
    """By name with its unit (``utilization_percent``, ``power_watts``); each of shape ``(n,)``.

    Where the sampling broke off there is one row of NaN between the samples on either side."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTelemetry:
    """What NVML said of one device."""

    uuid: str
    name: str | None
    index: int | None
    """As the driver numbers it; None where not known."""

    memory_bytes: int | None
    power_limit_watts: float | None
    """The limit in force when sampling began."""

    max_link: tuple[int, int] | None
    """PCIe generation and width that the device and its slot are capable of."""

    series: Series
    """Every :class:`DeviceColumn`."""

    visible: bool | None = None
    """Whether ``CUDA_VISIBLE_DEVICES`` let the training see it; None where not known."""

    cuda_index: int | None = None
    """As the training numbers it (``cuda:0``); None where not visible or not known."""

    max_sm_clock_mhz: int | None = None
    slowdown_celsius: int | None = None
    """Temperature at which the hardware slows itself down."""

    default_power_limit_watts: float | None = None
    """As the device comes."""

    max_power_limit_watts: float | None = None
    """The highest limit that may be set."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkerTelemetry:
    """One of the busiest children of the training processes: mostly a data loader's worker."""

    pid: int
    name: str | None
    series: Series
    """Every :class:`WorkerColumn`, for the samples in which it was among the busiest."""


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """One node's samples."""

    host: str
    devices: tuple[DeviceTelemetry, ...]
    node: Series
    """CPU, memory and I/O of the whole host: every :class:`NodeColumn`."""

    processes: Series
    """CPU, memory and I/O of the training process and its children: every :class:`ProcessColumn`."""

    cpu_count: int | None
    cpu_quota: float | None
    """Cores the cgroup grants; None where it sets no limit."""

    cpu_affinity: int | None = None
    """CPUs the training may run on; None where not known."""

    memory_bytes: int | None = None
    """Of the host."""

    workers: tuple[WorkerTelemetry, ...] = ()
    devices_missing: str | None = None
    """Why no device was sampled; None where some were, or where not known."""

    group_memory_limit_bytes: int | None = None
    """What the control group grants; None where it sets no limit."""
