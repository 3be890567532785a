"""The part of the JSON report that describes a captured run and its machine; see ``report_document.py``.

Samples are not in it: they are in the capture's own telemetry file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from traceadvisor.model.run import StepState
from traceadvisor.model.telemetry import ClockEventReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStepsDocument:
    """The steps of a run during which the profiler was doing the same; the first step of the run counts nowhere."""

    count: int
    median_us: float
    mean_us: float
    longest_us: float
    mean_loader_us: float
    """Time in the training loader's ``__next__``; a loader with several workers delivers in bursts."""


StepsPerState = Annotated[
    dict[StepState, RunStepsDocument],
    Meta(extra_json_schema={"propertyNames": {"enum": [state.value for state in StepState]}}),
]
SharePerReason = Annotated[
    dict[str, float],
    Meta(extra_json_schema={"propertyNames": {"enum": [str(reason.name).lower() for reason in ClockEventReason]}}),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettingsDocument:
    """The training loader's arguments; null where not known."""

    batch_size: int | None
    num_workers: int | None
    prefetch_factor: int | None
    pin_memory: bool | None
    persistent_workers: bool | None
    drop_last: bool | None
    dataset_length: int | None
    sample_count: int | None
    """Samples that this rank draws in an epoch."""

    batch_count: int | None
    """Batches in an epoch of this rank."""

    sampler: str | None
    """The sampler's class."""

    file: str | None
    """Of the loop that iterates over it."""

    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsDocument:
    """What a trace does not hold; null where not known."""

    loader: LoaderSettingsDocument | None
    optimizer: str | None
    autocast_dtype: str | None
    """Null also where autocast was not used."""

    grad_scaler: bool | None
    matmul_tf32: bool | None
    cudnn_tf32: bool | None
    cudnn_benchmark: bool | None
    torch_version: str | None
    cuda_version: str | None
    python_version: str | None
    cpu_count: int | None
    cpu_quota_cores: float | None
    """Cores the process may use: the smaller of affinity and quota; null where nothing limits it."""

    torch_threads: int | None
    """Threads of an operator on the CPU."""

    detect_anomaly: bool | None
    """Whether autograd looked for its own errors at any time."""

    cuda_sync_debug_mode: int | None
    """0, 1 (warns of synchronising calls) or 2 (refuses them)."""

    gc_share: float | None
    """Share of the time since the first step in which Python's garbage collector held the run up."""

    gc_longest_us: float | None
    """Its longest pause since then."""

    own_profiler_share: float | None
    """Share of optimizer steps during which a profiler of the script's own was at work."""

    environment: dict[str, str]
    """Variables that change how training runs, as far as they were set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """One rank of a captured run."""

    command: list[str]
    ending: str
    """How the script ended, in words."""

    step_count: int
    """All steps, the first one and those that did not train among them."""

    steps_by_state: StepsPerState
    settings: SettingsDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTelemetryDocument:
    """One device of the machine, its figures over the undisturbed steps; null where no sample holds them."""

    uuid: str
    name: str | None
    cuda_index: int | None
    """As the training numbers it."""

    memory_bytes: int | None
    power_limit_watts: float | None
    """When sampling began."""

    default_power_limit_watts: float | None
    max_power_limit_watts: float | None
    slowdown_celsius: int | None
    max_sm_clock_mhz: int | None
    sample_count: int
    mean_utilization_share: float | None
    peak_utilization_share: float | None
    mean_memory_utilization_share: float | None
    peak_memory_bytes: float | None
    peak_memory_share: float | None
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
    clock_event_shares: SharePerReason | None
    """Share of the samples in which each reason held the clocks back, of those that ever did."""

    thermal_share: float | None
    """Share of the samples in which heat slowed the device down."""

    power_share: float | None
    """Share of the samples in which its power limit or a power brake did."""

    mean_pcie_tx_bytes_per_s: float | None
    mean_pcie_rx_bytes_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTelemetryDocument:
    """The whole host over the undisturbed steps; null where no sample holds a figure."""

    name: str
    cpu_count: int | None
    memory_bytes: int | None
    sample_count: int
    mean_cpu_share: float | None
    peak_cpu_share: float | None
    mean_iowait_share: float | None
    least_available_memory_bytes: float | None
    least_available_memory_share: float | None
    peak_swap_bytes: float | None
    mean_disk_read_bytes_per_s: float | None
    mean_disk_write_bytes_per_s: float | None
    mean_load: float | None
    swap_growth_bytes: float | None
    """From the first sample to the fullest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTelemetryDocument:
    """One child of the training processes."""

    pid: int
    name: str | None
    mean_cpu_cores: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTelemetryDocument:
    """The training processes and their children over the undisturbed steps."""

    sample_count: int
    peak_process_count: float | None
    mean_cpu_cores: float | None
    granted_cpu_share: float | None
    """Of the cores they may use."""

    peak_rss_bytes: float | None
    mean_read_bytes_per_s: float | None
    mean_write_bytes_per_s: float | None
    workers: list[WorkerTelemetryDocument]
    mean_throttled_share: float | None
    """Of the scheduler's periods, those in which the CPU quota was used up; null where there is no quota."""

    peak_group_memory_bytes: float | None
    peak_group_memory_share: float | None
    """Of what the control group grants; null where it sets no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryDocument:
    """The machine while the run's undisturbed steps went on."""

    devices: list[DeviceTelemetryDocument]
    devices_missing: str | None
    """Why no device was sampled; null where some were, or where not known."""

    host: HostTelemetryDocument
    processes: ProcessTelemetryDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class WallClockRangeDocument:
    """Microseconds since the epoch."""

    start: float
    end: float
