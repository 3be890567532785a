"""The devices of a machine that a report shows, and what they are called and limited by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceadvisor.model.report import Recording
from traceadvisor.model.telemetry import DeviceColumn, DeviceTelemetry, Telemetry
from traceadvisor.model.telemetry_window import DeviceWindow, TelemetryWindow
from traceadvisor.rendering.charts.palette import DEVICE_PAINTS, Paint

MOST_DEVICES = len(DEVICE_PAINTS)
"""Drawn and tabled; the figures of the others are in the JSON report."""


@dataclass(frozen=True, slots=True)
class ShownDevice:
    """A device with its figures over the undisturbed steps."""

    name: str
    paint: Paint
    telemetry: DeviceTelemetry
    window: DeviceWindow | None

    @property
    def power_limits_watts(self) -> tuple[float, float] | None:
        """The lowest and the highest limit that was in force; None where none is known."""
        limits = self.telemetry.series.figures.get(DeviceColumn.POWER_LIMIT_WATTS, np.empty(0))
        seen = limits[np.isfinite(limits)].tolist()
        initial = self.telemetry.power_limit_watts
        known = seen or ([] if initial is None else [initial])
        return (min(known), max(known)) if known else None


def used_devices(
    telemetry: Telemetry, window: TelemetryWindow | None, recordings: Sequence[Recording]
) -> tuple[ShownDevice, ...]:
    """The devices that were recorded; where they cannot be told, those that the training could see."""
    windows: Sequence[DeviceWindow | None] = window.devices if window else (None,) * len(telemetry.devices)
    sampled = [pair for pair in zip(telemetry.devices, windows, strict=True) if pair[0].series.time_ns.size]
    recorded = {recording.device.index for recording in recordings if recording.device}
    used = [pair for pair in sampled if pair[0].cuda_index in recorded]
    if not used:
        used = [pair for pair in sampled if pair[0].visible is not False] or sampled
    return tuple(
        ShownDevice(_name(device, place), DEVICE_PAINTS[place % MOST_DEVICES], device, figures)
        for place, (device, figures) in enumerate(used)
    )


def granted_cores(telemetry: Telemetry) -> float | None:
    """The cores that the training may use: the least of the host's, the affinity's and the quota's."""
    limits = (telemetry.cpu_count, telemetry.cpu_affinity, telemetry.cpu_quota)
    return min((float(limit) for limit in limits if limit), default=None)


def _name(device: DeviceTelemetry, place: int) -> str:
    numbers = (device.cuda_index, device.index, place)
    return f"GPU {next(number for number in numbers if number is not None)}"
