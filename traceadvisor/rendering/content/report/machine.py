"""The machine: notices, charts, and tables over the undisturbed steps."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.telemetry import Telemetry
from traceadvisor.model.telemetry_window import NodeWindow, ProcessWindow, TelemetryWindow
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.content.report.machine_charts import (
    MOST_DEVICES,
    Machine,
    ShownDevice,
    granted_cores,
    machine_charts,
    used_devices,
)
from traceadvisor.rendering.content.report.run import CapturedRecordings
from traceadvisor.rendering.document.blocks import Block, Group, Prose, Tone
from traceadvisor.rendering.document.table import Cell, Layout, Table, cells, titled
from traceadvisor.rendering.units import (
    NOT_MEASURED,
    celsius,
    count,
    megahertz,
    number_of,
    percent,
    rate,
    ratio,
    size,
    watts,
)
from traceadvisor.rendering.words import CLOCKS_HELD_BACK

HINT = "Run traceadvisor doctor on that machine to see what it can sample."

UTILISATION = (
    "GPU utilisation is a share of time: it is 100% for a GPU that is never idle, even if its kernels are inefficient."
)


def machine_blocks(shared: CapturedRecordings, number: int, *, several: bool) -> Iterator[Block]:
    """The machine with this number in the report, counted from 1."""
    telemetry = shared.run.telemetry
    name = "Not sampled" if telemetry is None else telemetry.host
    inside = tuple(_machine(shared, f"machine-{number}"))
    if several:
        yield Group(f"Machine {name}", (Prose(", ".join(shared.ids), Tone.QUIET), *inside))
    else:
        yield from inside


def _machine(shared: CapturedRecordings, anchor: str) -> Iterator[Block]:
    telemetry = shared.run.telemetry
    if telemetry is None:
        yield Prose(f"No telemetry: the capture has no machine samples. {HINT}", Tone.NOTICE)
        return
    window = next((recording.telemetry for recording in shared.recordings if recording.telemetry), None)
    machine = Machine(telemetry, window, used_devices(telemetry, window, shared.recordings))
    clock = shared.sample_clock
    yield from (Prose(notice, Tone.NOTICE) for notice in _notices(machine, clock))
    if clock:
        yield Prose(_introduction(clock, has_devices=bool(machine.devices)), Tone.QUIET)
        yield from machine_charts(machine, clock, anchor)
    tables = (*map(device_table, machine.devices[:MOST_DEVICES]), host_table(telemetry, window))
    yield from (table for table in tables if table is not None)


def _introduction(clock: RunClock, *, has_devices: bool) -> str:
    shaded = " Shaded: recorded by the profiler." if clock.windows else ""
    return (
        f"Samples over the whole run, on the recording's clock.{shaded} A gap in a line means no sample. "
        "The figures beside the names and in the tables cover the undisturbed steps."
        f"{f' {UTILISATION}' if has_devices else ''}"
    )


def _notices(machine: Machine, clock: RunClock | None) -> Iterator[str]:
    telemetry = machine.telemetry
    if not telemetry.devices:
        reason = telemetry.devices_missing
        yield f"No GPU telemetry: {reason}. {HINT}" if reason else f"No GPU telemetry. {HINT}"
    elif not machine.devices and all(device.split for device in telemetry.devices):
        yield "No GPU telemetry: the GPU is split into slices (MIG), and its figures are not those of one slice."
    elif not machine.devices:
        yield f"No GPU telemetry: {number_of(len(telemetry.devices), 'GPU')} found, but no sample could be read. {HINT}"
    if len(machine.devices) > MOST_DEVICES:
        more = len(machine.devices) - MOST_DEVICES
        yield f"{number_of(more, 'more GPU')}: see the JSON report."
    if _is_empty(telemetry, machine.window):
        yield "No averages available: no sample was taken during undisturbed steps."
    if clock is not None and not clock.windows:
        yield "No shading: the recorded time is unknown on this clock."


def _is_empty(telemetry: Telemetry, window: TelemetryWindow | None) -> bool:
    if window is None:
        return True
    counts = (window.node.sample_count, window.processes.sample_count, *(one.sample_count for one in window.devices))
    return bool(telemetry.node.time_ns.size) and not any(counts)


MOST_WORKERS = 8
"""Busiest worker processes to list; a run may have hundreds."""

_COLUMNS = titled("Figure", "Mean", "Peak", "Limit")

Row = tuple[Cell, ...]


def device_table(device: ShownDevice) -> Table | None:
    """The table of one GPU; None without samples during undisturbed steps."""
    if device.window is None:
        return None
    name = f"{device.name}: {device.telemetry.name}" if device.telemetry.name else device.name
    return Table(name, _COLUMNS, tuple(_device_rows(device)), layout=Layout.NARROW, is_named=True)


def host_table(telemetry: Telemetry, window: TelemetryWindow | None) -> Table | None:
    """The table of the host and the training processes; None without samples during undisturbed steps."""
    if window is None:
        return None
    rows = (*_node_rows(telemetry, window.node), *_process_rows(telemetry, window.processes))
    return Table(f"CPU and memory ({telemetry.host})", _COLUMNS, rows, layout=Layout.NARROW, is_named=True)


def _device_rows(device: ShownDevice) -> Iterator[Row]:
    window, telemetry = device.window, device.telemetry
    if window is None:
        return
    limits = device.power_limits_watts
    yield _row("Utilisation", mean=percent(window.mean_utilization_share), peak=percent(window.peak_utilization_share))
    yield _row("Memory in use", peak=size(window.peak_memory_bytes), of=size(telemetry.memory_bytes))
    yield _row("Memory used by other processes", peak=size(window.peak_foreign_memory_bytes))
    yield _row("Memory reads and writes, share of time", mean=percent(window.mean_memory_utilization_share))
    yield _row("Power", mean=watts(window.mean_power_watts), of=watts(limits[1] if limits else None))
    yield _row(
        "Temperature",
        mean=celsius(window.mean_temperature_celsius),
        peak=celsius(window.peak_temperature_celsius),
        of=celsius(telemetry.slowdown_celsius),
    )
    yield _row("SM clock", mean=megahertz(window.mean_sm_clock_mhz), of=megahertz(telemetry.max_sm_clock_mhz))
    yield _row("Memory clock", mean=megahertz(window.mean_memory_clock_mhz))
    yield _row("Thermal slowdown, share of samples", mean=percent(window.thermal_share))
    yield _row("Power slowdown, share of samples", mean=percent(window.power_share))
    for reason, share in (window.clock_event_shares or {}).items():
        if reason in CLOCKS_HELD_BACK:
            yield _row(f"Clocks limited by {CLOCKS_HELD_BACK[reason]}, share of samples", mean=percent(share))
    yield _row("PCIe, CPU to GPU", mean=rate(window.mean_pcie_rx_bytes_per_s))
    yield _row("PCIe, GPU to CPU", mean=rate(window.mean_pcie_tx_bytes_per_s))
    yield _row("PCIe link", peak=_link(window.best_link), of=_link(telemetry.max_link))


def _node_rows(telemetry: Telemetry, window: NodeWindow) -> Iterator[Row]:
    cpus = "" if telemetry.cpu_count is None else number_of(telemetry.cpu_count, "CPU")
    yield _row("CPU", mean=percent(window.mean_cpu_share), peak=percent(window.peak_cpu_share), of=cpus)
    yield _row("I/O wait", mean=percent(window.mean_iowait_share))
    yield _row("Load", mean=ratio(window.mean_load), of=cpus)
    least, whole = window.least_available_memory_bytes, telemetry.memory_bytes
    taken = None if least is None or whole is None else whole - least
    yield _row("Memory in use", peak=size(taken), of=size(whole))
    yield _row("Swap in use", peak=size(window.peak_swap_bytes))
    yield _row("Disk reads", mean=rate(window.mean_disk_read_bytes_per_s))
    yield _row("Disk writes", mean=rate(window.mean_disk_write_bytes_per_s))


def _process_rows(telemetry: Telemetry, window: ProcessWindow) -> Iterator[Row]:
    cores = granted_cores(telemetry)
    yield _row("Training processes", peak=count(window.peak_process_count))
    of = "" if cores is None else f"{cores:g}"
    yield _row("Cores in use by training processes", mean=ratio(window.mean_cpu_cores), of=of)
    yield _row("Memory of training processes (shared pages counted in each)", peak=size(window.peak_rss_bytes))
    yield _row("Storage reads by training processes", mean=rate(window.mean_read_bytes_per_s))
    yield _row("Storage writes by training processes", mean=rate(window.mean_write_bytes_per_s))
    if telemetry.cpu_quota is not None:
        yield _row("Throttled by the CPU quota, share of periods", mean=percent(window.mean_throttled_share))
    if (limit := telemetry.group_memory_limit_bytes) is not None:
        yield _row("Memory of the control group", peak=size(window.peak_group_memory_bytes), of=size(limit))
    for worker in window.workers[:MOST_WORKERS]:
        name = f"{worker.name} ({worker.pid})" if worker.name else f"process {worker.pid}"
        yield _row(f"Cores in use by {name}", mean=ratio(worker.mean_cpu_cores))


def _row(figure: str, *, mean: str = "", peak: str = "", of: str = "") -> Row:
    """A figure with its mean, its peak and its limit ``of``, as far as it has them."""
    return cells(figure, mean, peak, of)


def _link(link: tuple[int, int] | None) -> str:
    return NOT_MEASURED if link is None else f"gen {link[0]} x{link[1]}"
