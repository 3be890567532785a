"""A machine as the templates read it.

The figures of a machine over the undisturbed steps as tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceadvisor.model.telemetry import Telemetry
from traceadvisor.model.telemetry_window import NodeWindow, ProcessWindow, TelemetryWindow
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.page.machine_charts import (
    MOST_DEVICES,
    Machine,
    ShownDevice,
    granted_cores,
    machine_charts,
    used_devices,
)
from traceadvisor.rendering.page.run import CapturedRecordings
from traceadvisor.rendering.table import Cell, Column, Table, cells
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

HINT = "The command traceadvisor doctor says what can be sampled on a machine."

UTILISATION = (
    "Utilisation of a GPU is a share of time: a GPU that is never idle reads 100%, however badly its kernels use it."
)


@dataclass(frozen=True, slots=True)
class MachineView:
    """What was sampled while some recordings were made."""

    name: str
    recordings: tuple[str, ...]
    notices: tuple[str, ...]
    """What was not sampled, and why."""

    introduction: str
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]


def machine_view(shared: CapturedRecordings, number: int) -> MachineView:
    """The view of the machine that stands at this place in the report, from 1."""
    telemetry = shared.run.telemetry
    if telemetry is None:
        notice = f"No telemetry: the capture holds no samples of the machine. {HINT}"
        return MachineView("Not sampled", shared.ids, (notice,), "", (), ())
    window = next((recording.telemetry for recording in shared.recordings if recording.telemetry), None)
    machine = Machine(telemetry, window, used_devices(telemetry, window, shared.recordings))
    clock = shared.sample_clock
    tables = (*map(device_table, machine.devices[:MOST_DEVICES]), host_table(telemetry, window))
    return MachineView(
        name=telemetry.host,
        recordings=shared.ids,
        notices=tuple(_notices(machine, clock)),
        introduction=_introduction(clock, has_devices=bool(machine.devices)),
        charts=tuple(machine_charts(machine, clock, f"machine-{number}")) if clock else (),
        tables=tuple(table for table in tables if table is not None),
    )


def _introduction(clock: RunClock | None, *, has_devices: bool) -> str:
    if clock is None:
        return ""
    shaded = " What the profiler recorded is shaded." if clock.windows else ""
    return (
        f"Samples over the whole run, on the recording's clock.{shaded} Where nothing was sampled, there is no line. "
        "The figures beside the names and in the tables are over the undisturbed steps."
        f"{f' {UTILISATION}' if has_devices else ''}"
    )


def _notices(machine: Machine, clock: RunClock | None) -> Iterator[str]:
    telemetry = machine.telemetry
    if not telemetry.devices:
        reason = telemetry.devices_missing
        yield f"No GPU telemetry: {reason}. {HINT}" if reason else f"No GPU telemetry. {HINT}"
    elif not machine.devices:
        yield f"No GPU telemetry: no sample of {number_of(len(telemetry.devices), 'device')} could be read. {HINT}"
    if len(machine.devices) > MOST_DEVICES:
        more = len(machine.devices) - MOST_DEVICES
        yield f"{number_of(more, 'more device')}: in the JSON report only."
    if _is_empty(telemetry, machine.window):
        yield "Means and peaks are not measured: no sample was taken during undisturbed steps."
    if clock is not None and not clock.windows:
        yield "When the profiler recorded is not known on this clock, so nothing is shaded."


def _is_empty(telemetry: Telemetry, window: TelemetryWindow | None) -> bool:
    if window is None:
        return True
    counts = (window.node.sample_count, window.processes.sample_count, *(one.sample_count for one in window.devices))
    return bool(telemetry.node.time_ns.size) and not any(counts)


MOST_WORKERS = 8
"""The busiest; a run may have hundreds of children."""

NOT_APPLICABLE = ""
"""A figure that has no such side: a mean of a capacity, a peak of a share of samples."""

_COLUMNS = (Column("Figure", numeric=False), Column("Mean"), Column("Peak"), Column("Of"))

Row = tuple[Cell, ...]


def device_table(device: ShownDevice) -> Table | None:
    """One device; None where nothing is known of it over the undisturbed steps."""
    if device.window is None:
        return None
    name = f"{device.name}: {device.telemetry.name}" if device.telemetry.name else device.name
    return Table(name, _COLUMNS, tuple(_device_rows(device)))


def host_table(telemetry: Telemetry, window: TelemetryWindow | None) -> Table | None:
    """The host and the training processes; None where nothing is known of them over the undisturbed steps."""
    if window is None:
        return None
    rows = (*_node_rows(telemetry, window.node), *_process_rows(telemetry, window.processes))
    return Table(f"Host {telemetry.host}", _COLUMNS, rows)


def _device_rows(device: ShownDevice) -> Iterator[Row]:
    window, telemetry = device.window, device.telemetry
    if window is None:
        return
    limits = device.power_limits_watts
    yield _row("Utilisation", mean=percent(window.mean_utilization_share), peak=percent(window.peak_utilization_share))
    yield _row("Memory in use", peak=size(window.peak_memory_bytes), of=size(telemetry.memory_bytes))
    yield _row("Memory of other processes", peak=size(window.peak_foreign_memory_bytes))
    yield _row("Memory being read or written", mean=percent(window.mean_memory_utilization_share))
    yield _row("Power", mean=watts(window.mean_power_watts), of=watts(limits[1] if limits else None))
    yield _row(
        "Temperature",
        mean=celsius(window.mean_temperature_celsius),
        peak=celsius(window.peak_temperature_celsius),
        of=celsius(telemetry.slowdown_celsius),
    )
    yield _row("SM clock", mean=megahertz(window.mean_sm_clock_mhz), of=megahertz(telemetry.max_sm_clock_mhz))
    yield _row("Memory clock", mean=megahertz(window.mean_memory_clock_mhz))
    yield _row("Slowed down by heat, share of samples", mean=percent(window.thermal_share))
    yield _row("Slowed down by power, share of samples", mean=percent(window.power_share))
    for reason, share in (window.clock_event_shares or {}).items():
        if reason in CLOCKS_HELD_BACK:
            yield _row(f"Clocks held back by {CLOCKS_HELD_BACK[reason]}, share of samples", mean=percent(share))
    yield _row("PCIe, host to device", mean=rate(window.mean_pcie_rx_bytes_per_s))
    yield _row("PCIe, device to host", mean=rate(window.mean_pcie_tx_bytes_per_s))
    yield _row("PCIe link", peak=_link(window.best_link), of=_link(telemetry.max_link))


def _node_rows(telemetry: Telemetry, window: NodeWindow) -> Iterator[Row]:
    cpus = "" if telemetry.cpu_count is None else number_of(telemetry.cpu_count, "CPU")
    yield _row("CPU", mean=percent(window.mean_cpu_share), peak=percent(window.peak_cpu_share), of=cpus)
    yield _row("Waiting for I/O", mean=percent(window.mean_iowait_share))
    yield _row("Load", mean=ratio(window.mean_load), of=cpus)
    least, whole = window.least_available_memory_bytes, telemetry.memory_bytes
    taken = None if least is None or whole is None else whole - least
    yield _row("Memory in use", peak=size(taken), of=size(whole))
    yield _row("Swap in use", peak=size(window.peak_swap_bytes))
    yield _row("Disk, read", mean=rate(window.mean_disk_read_bytes_per_s))
    yield _row("Disk, written", mean=rate(window.mean_disk_write_bytes_per_s))


def _process_rows(telemetry: Telemetry, window: ProcessWindow) -> Iterator[Row]:
    cores = granted_cores(telemetry)
    yield _row("Training processes", peak=count(window.peak_process_count))
    yield _row("Their cores in use", mean=ratio(window.mean_cpu_cores), of="" if cores is None else f"{cores:g}")
    yield _row("Their memory, shared pages counted each time", peak=size(window.peak_rss_bytes))
    yield _row("Their reads from storage", mean=rate(window.mean_read_bytes_per_s))
    yield _row("Their writes to storage", mean=rate(window.mean_write_bytes_per_s))
    if telemetry.cpu_quota is not None:
        yield _row("Held back by the CPU quota, share of periods", mean=percent(window.mean_throttled_share))
    if (limit := telemetry.group_memory_limit_bytes) is not None:
        yield _row("Memory of the control group", peak=size(window.peak_group_memory_bytes), of=size(limit))
    for worker in window.workers[:MOST_WORKERS]:
        name = f"{worker.name} ({worker.pid})" if worker.name else f"process {worker.pid}"
        yield _row(f"Cores in use by {name}", mean=ratio(worker.mean_cpu_cores))


def _row(figure: str, *, mean: str = NOT_APPLICABLE, peak: str = NOT_APPLICABLE, of: str = NOT_APPLICABLE) -> Row:
    return cells(figure, mean, peak, of)


def _link(link: tuple[int, int] | None) -> str:
    return NOT_MEASURED if link is None else f"gen {link[0]} x{link[1]}"
