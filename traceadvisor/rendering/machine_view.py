"""A machine as the templates read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceadvisor.model.telemetry import Telemetry
from traceadvisor.model.telemetry_window import TelemetryWindow
from traceadvisor.rendering.captured import CapturedRecordings
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.drawing import Chart
from traceadvisor.rendering.machine_charts import Machine, machine_charts
from traceadvisor.rendering.machine_devices import MOST_DEVICES, used_devices
from traceadvisor.rendering.machine_tables import device_table, host_table
from traceadvisor.rendering.table import Table
from traceadvisor.rendering.units import number_of

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
