"""Samples of devices, host and processes over the time of a run, in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from traceadvisor.model.arrays import Float64, Int64


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Several figures sampled together; NaN where one was not supported or not read."""

    time_ns: Int64
    """Wall clock, nanoseconds since the epoch, ascending; shape ``(n,)``."""

    figures: Mapping[str, Float64]
    """By name with its unit (``utilization_percent``, ``power_watts``); each of shape ``(n,)``."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTelemetry:
    """What NVML said of one device."""

    uuid: str
    name: str | None
    index: int | None
    """As the driver numbers it; None where not known."""

    memory_bytes: int | None
    power_limit_watts: float | None
    max_link: tuple[int, int] | None
    """PCIe generation and width the device is capable of."""

    series: Series


@dataclass(frozen=True, slots=True, eq=False)
class Telemetry:
    """One node's samples."""

    host: str
    devices: tuple[DeviceTelemetry, ...]
    node: Series
    """CPU, memory and I/O of the whole host."""

    processes: Series
    """CPU, memory and I/O of the training process and its children."""

    cpu_count: int | None
    cpu_quota: float | None
    """Cores the cgroup grants; None where it sets no limit."""
