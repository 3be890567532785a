"""The lines of a telemetry file.

Each line is one JSON object: first a :class:`Header`, then one :class:`Sample` after another. A figure that is null is
not supported or could not be read; a figure that is absent was not due in that sample (the dear ones are read less
often). Figures are named as the columns of :mod:`traceadvisor.model.telemetry`.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

FORMAT = "traceadvisor.telemetry/1"

Figure = float | None
"""None where not supported or not readable."""

SeldomFigure = float | None | UnsetType
"""As :data:`Figure`; UNSET, and then not in the file, where not due in that sample."""


class DeviceHeader(msgspec.Struct, frozen=True):
    """What does not change about a device."""

    uuid: str
    index: int
    """As the driver numbers it."""

    name: str | None
    memory_bytes: int | None
    power_limit_watts: float | None
    """In force when sampling began."""

    default_power_limit_watts: float | None
    """As the device comes."""

    max_power_limit_watts: float | None
    """The highest that may be set."""

    max_link_generation: int | None
    max_link_width: int | None
    """What device and slot are capable of together."""

    max_sm_clock_mhz: int | None
    max_memory_clock_mhz: int | None
    slowdown_celsius: int | None
    visible: bool | None
    """To this process, by ``CUDA_VISIBLE_DEVICES``; None where that cannot be told."""

    cuda_index: int | None
    """As this process numbers it; None where not visible or where that cannot be told."""


class Header(msgspec.Struct, frozen=True, tag_field="record", tag="header"):
    """The first line: what was sampled, and on what."""

    format: str
    time_ns: int
    host: str
    interval_s: float
    """As asked for; each sample holds the one it was taken at."""

    cpu_count: int | None
    cpu_affinity: int | None
    cpu_quota: float | None
    """Cores the cgroup grants; None where it sets no limit."""

    memory_bytes: int | None
    group_memory_limit_bytes: int | None
    """What the control group grants; None where it sets no limit."""

    devices: tuple[DeviceHeader, ...]
    nvml_version: str | None
    driver_version: str | None
    nvml_unavailable: str | None
    """Why there are no devices; None where NVML works."""


class DeviceSample(msgspec.Struct, frozen=True, kw_only=True):
    """One device, at one moment."""

    utilization_percent: Figure = None
    memory_utilization_percent: Figure = None
    memory_used_bytes: Figure = None
    power_watts: Figure = None
    temperature_celsius: Figure = None
    sm_clock_mhz: Figure = None
    memory_clock_mhz: Figure = None
    clock_event_reasons: Figure = None
    power_limit_watts: SeldomFigure = UNSET
    link_generation: SeldomFigure = UNSET
    link_width: SeldomFigure = UNSET
    process_count: SeldomFigure = UNSET
    own_memory_bytes: SeldomFigure = UNSET
    foreign_memory_bytes: SeldomFigure = UNSET
    pcie_tx_bytes_per_s: SeldomFigure = UNSET
    pcie_rx_bytes_per_s: SeldomFigure = UNSET


class NodeSample(msgspec.Struct, frozen=True, kw_only=True):
    """The whole host, at one moment; rates are over the time since they were last read."""

    cpu_percent: Figure = None
    iowait_percent: Figure = None
    memory_available_bytes: SeldomFigure = UNSET
    memory_used_bytes: SeldomFigure = UNSET
    swap_used_bytes: SeldomFigure = UNSET
    disk_read_bytes_per_s: SeldomFigure = UNSET
    disk_write_bytes_per_s: SeldomFigure = UNSET
    network_received_bytes_per_s: SeldomFigure = UNSET
    network_sent_bytes_per_s: SeldomFigure = UNSET
    load_1min: SeldomFigure = UNSET


class WorkerSample(msgspec.Struct, frozen=True):
    """One child of the training processes, at one moment."""

    pid: int
    name: str
    """Of its main thread; a ``DataLoader``'s workers are ``pt_data_worker``."""

    cpu_percent: float
    rss_bytes: int


class ProcessSample(msgspec.Struct, frozen=True, kw_only=True):
    """The training processes and their children, at one moment; rates are over the time since they were last read."""

    process_count: int
    cpu_percent: Figure = None
    rss_bytes: Figure = None
    read_bytes_per_s: SeldomFigure = UNSET
    write_bytes_per_s: SeldomFigure = UNSET
    throttled_percent: SeldomFigure = UNSET
    group_memory_bytes: SeldomFigure = UNSET
    busiest: tuple[WorkerSample, ...] | UnsetType = UNSET
    """The children that used most CPU time so far, the busiest first; their share is over the time since they were
    last read."""


class Sample(msgspec.Struct, frozen=True, tag_field="record", tag="sample"):
    """One moment."""

    time_ns: int
    """Wall clock, nanoseconds since the epoch, as the clock gave it: it may go back."""

    interval_s: float
    """The next sample is due after this long."""

    devices: dict[str, DeviceSample]
    """By UUID."""

    node: NodeSample
    processes: ProcessSample
