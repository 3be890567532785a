"""Telemetry of a machine as charts on one clock, and the GPUs that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from traceadvisor.frozen import frozen
from traceadvisor.model.arrays import Mask
from traceadvisor.model.report import Recording
from traceadvisor.model.telemetry import DeviceColumn, DeviceTelemetry, NodeColumn, ProcessColumn, Series, Telemetry
from traceadvisor.model.telemetry_window import DeviceWindow, TelemetryWindow
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.drawing import Chart, LegendEntry
from traceadvisor.rendering.charts.palette import DEVICE_PAINTS, HOST_PAINT, PROCESSES_PAINT, WAITING_PAINT, Paint
from traceadvisor.rendering.charts.trend import Limit, Subject, Trend, trend_chart
from traceadvisor.rendering.units import celsius, megahertz, percent, rate, size, watts, whole_percent
from traceadvisor.text.ranges import between

PERCENT = 0.01


@frozen
class Machine:
    """The data behind the charts and tables of a machine."""

    telemetry: Telemetry
    window: TelemetryWindow | None
    """Figures over the undisturbed steps; None without such steps."""

    devices: tuple[ShownDevice, ...]


Drawing = tuple[Subject, list[Trend]]


def machine_charts(machine: Machine, clock: RunClock, anchor: str) -> Iterator[Chart]:
    """One chart per figure that has at least one sample."""
    on_device = (_utilization, _memory, _power, _temperature, _sm_clock)
    on_host = (_cpu, _host_memory, _disk)
    for number, draw in enumerate(on_device if machine.devices else on_host, start=1):
        chart = trend_chart(*draw(machine), clock, f"{anchor}-{number}")
        if chart is not None:
            yield chart


def _utilization(machine: Machine) -> Drawing:
    devices = _of_devices(
        machine, DeviceColumn.UTILIZATION_PERCENT, lambda window: _mean(percent, window.mean_utilization_share), PERCENT
    )
    return Subject("Utilisation", whole_percent, least_top=1.0), [*devices, *_of_cpus(machine)]


def _memory(machine: Machine) -> Drawing:
    capacity = _common(device.telemetry.memory_bytes for device in machine.devices)
    trends = _of_devices(machine, DeviceColumn.MEMORY_USED_BYTES, lambda window: _peak(size, window.peak_memory_bytes))
    return Subject("GPU memory", size, _limit(capacity, f"capacity {size(capacity)}")), trends


def _power(machine: Machine) -> Drawing:
    limits = [device.power_limits_watts for device in machine.devices]
    known = [limit for limit in limits if limit is not None]
    low, high = (min(low for low, _ in known), max(high for _, high in known)) if known else (None, None)
    words = f"limit {between(watts(low), watts(high))}"
    trends = _of_devices(machine, DeviceColumn.POWER_WATTS, lambda window: _mean(watts, window.mean_power_watts))
    return Subject("Power", watts, _limit(high, words)), trends


def _temperature(machine: Machine) -> Drawing:
    slowdown = _common(device.telemetry.slowdown_celsius for device in machine.devices)
    trends = _of_devices(
        machine, DeviceColumn.TEMPERATURE_CELSIUS, lambda window: _peak(celsius, window.peak_temperature_celsius)
    )
    return Subject("Temperature", celsius, _limit(slowdown, f"slows down at {celsius(slowdown)}")), trends


def _sm_clock(machine: Machine) -> Drawing:
    highest = _common(device.telemetry.max_sm_clock_mhz for device in machine.devices)
    trends = _of_devices(machine, DeviceColumn.SM_CLOCK_MHZ, lambda window: _mean(megahertz, window.mean_sm_clock_mhz))
    return Subject("SM clock", megahertz, _limit(highest, f"highest {megahertz(highest)}")), trends


def _cpu(machine: Machine) -> Drawing:
    node, window = machine.telemetry.node, machine.window
    waiting = _mean(percent, window.node.mean_iowait_share if window else None)
    trend = _trend(LegendEntry(WAITING_PAINT, "I/O wait", waiting), node, NodeColumn.IOWAIT_PERCENT, PERCENT)
    return Subject("CPU", whole_percent, least_top=1.0), [*_of_cpus(machine), trend]


def _of_cpus(machine: Machine) -> Iterator[Trend]:
    telemetry, window = machine.telemetry, machine.window
    busy = _mean(percent, window.node.mean_cpu_share if window else None)
    yield _trend(LegendEntry(HOST_PAINT, "CPU", busy), telemetry.node, NodeColumn.CPU_PERCENT, PERCENT)
    cores = granted_cores(telemetry)
    if cores is not None:
        used = _mean(percent, window.processes.granted_cpu_share if window else None)
        label = f"Training processes, of {cores:g} cores"
        processes = telemetry.processes
        yield _trend(LegendEntry(PROCESSES_PAINT, label, used), processes, ProcessColumn.CPU_PERCENT, PERCENT / cores)


def _host_memory(machine: Machine) -> Drawing:
    telemetry, window = machine.telemetry, machine.window
    own = _peak(size, window.processes.peak_rss_bytes if window else None)
    trends = [
        _trend(LegendEntry(HOST_PAINT, "All processes", ""), telemetry.node, NodeColumn.MEMORY_USED_BYTES),
        _trend(LegendEntry(PROCESSES_PAINT, "Training processes", own), telemetry.processes, ProcessColumn.RSS_BYTES),
    ]
    capacity = telemetry.memory_bytes
    return Subject("CPU memory", size, _limit(capacity, f"capacity {size(capacity)}")), trends


def _disk(machine: Machine) -> Drawing:
    node, figures = machine.telemetry.node, machine.window.node if machine.window else None
    read = _mean(rate, figures.mean_disk_read_bytes_per_s if figures else None)
    written = _mean(rate, figures.mean_disk_write_bytes_per_s if figures else None)
    return Subject("Disk", rate), [
        _trend(LegendEntry(HOST_PAINT, "Reads", read), node, NodeColumn.DISK_READ_BYTES_PER_S),
        _trend(LegendEntry(DEVICE_PAINTS[0], "Writes", written), node, NodeColumn.DISK_WRITE_BYTES_PER_S),
    ]


def _of_devices(
    machine: Machine, column: DeviceColumn, figure: Callable[[DeviceWindow], str], scale: float = 1.0
) -> list[Trend]:
    return [
        _trend(
            LegendEntry(device.paint, device.name, figure(device.window) if device.window else ""),
            device.telemetry.series,
            column,
            scale,
        )
        for device in machine.devices[:MOST_DEVICES]
    ]


def _trend(name: LegendEntry, series: Series, column: str, scale: float = 1.0) -> Trend:
    values = series.figures.get(column, np.full(series.time_ns.size, np.nan)) * scale
    return Trend(name, series.time_ns, values, _broken_off(series))


def _broken_off(series: Series) -> Mask:
    """A mask of the rows without any figure."""
    held = np.zeros(series.time_ns.size, dtype=np.bool_)
    for values in series.figures.values():
        held |= np.isfinite(values)
    return ~held


def _mean(words: Callable[[float], str], value: float | None) -> str:
    return "" if value is None else f"mean {words(value)}"


def _peak(words: Callable[[float], str], value: float | None) -> str:
    return "" if value is None else f"peak {words(value)}"


def _limit(value: float | None, words: str) -> Limit | None:
    return Limit(float(value), words) if value else None


def _common(values: Iterator[int | None] | Sequence[int | None]) -> int | None:
    """The common value; None if values differ or one is unknown."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


MOST_DEVICES = len(DEVICE_PAINTS)
"""GPUs with charts and tables; the JSON report has the others."""


@frozen
class ShownDevice:
    """A GPU with its figures over the undisturbed steps."""

    name: str
    paint: Paint
    telemetry: DeviceTelemetry
    window: DeviceWindow | None

    @property
    def power_limits_watts(self) -> tuple[float, float] | None:
        """The lowest and the highest power limit during the run; None if unknown."""
        limits = self.telemetry.series.figures.get(DeviceColumn.POWER_LIMIT_WATTS, np.empty(0))
        seen = limits[np.isfinite(limits)].tolist()
        initial = self.telemetry.power_limit_watts
        known = seen or ([] if initial is None else [initial])
        return (min(known), max(known)) if known else None


def used_devices(
    telemetry: Telemetry, window: TelemetryWindow | None, recordings: Sequence[Recording]
) -> tuple[ShownDevice, ...]:
    """The GPUs in the recordings; if they cannot be identified, all that are not split into slices (MIG)."""
    windows: Sequence[DeviceWindow | None] = window.devices if window else (None,) * len(telemetry.devices)
    pairs = zip(telemetry.devices, windows, strict=True)
    # A report that was read back has no samples, only figures of them.
    sampled = [(one, seen) for one, seen in pairs if one.series.time_ns.size or (seen and seen.sample_count)]
    recorded = {uuid for recording in recordings for uuid in _recorded(recording)}
    used = [pair for pair in sampled if pair[0].uuid in recorded]
    if not used:
        used = [pair for pair in sampled if not pair[0].split]
    return tuple(
        ShownDevice(_name(device, place), DEVICE_PAINTS[place % MOST_DEVICES], device, figures)
        for place, (device, figures) in enumerate(used)
    )


def _recorded(recording: Recording) -> Iterator[str]:
    """The sampled GPU of a recording: each rank numbers them in its own way."""
    telemetry = recording.captured.telemetry if recording.captured else None
    if telemetry and recording.device:
        yield from (one.uuid for one in telemetry.devices if one.cuda_index == recording.device.index)


def granted_cores(telemetry: Telemetry) -> float | None:
    """The cores that the training may use: the smallest of CPU count, affinity and quota; None if unknown."""
    limits = (telemetry.cpu_count, telemetry.cpu_affinity, telemetry.cpu_quota)
    return min((float(limit) for limit in limits if limit), default=None)


def _name(device: DeviceTelemetry, place: int) -> str:
    numbers = (device.cuda_index, device.index, place)
    return f"GPU {next(number for number in numbers if number is not None)}"
