"""Tables of one recording: kernels, operators, overlap, and simulation checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from traceadvisor.model.communication import CommunicationRow
from traceadvisor.model.location import Location
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import KernelRow, ModuleRow, OperatorRow, Overlap, Recording
from traceadvisor.rendering.charts.drawing import across
from traceadvisor.rendering.document.table import (
    Cell,
    Layout,
    More,
    Table,
    cells,
    measured_columns,
    sort_key,
    sorted_by,
    titled,
)
from traceadvisor.rendering.origins import frame_words, location_words
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, number_of, percent, rate, ratio, size
from traceadvisor.rendering.words import COLLECTIVE, PURPOSE, WORK
from traceadvisor.text.cleaning import clipped, clipped_inside

OPEN_ROWS = 8
"""Rows shown unfolded."""

LONGEST_NAME = 240
"""Characters of a kernel name; the parts that differ between template instances come early."""

LONGEST_PLACE = 120
"""Characters of a place in the code."""

MOST_ROWS = 40
"""The JSON report has the remaining rows; a page with three recordings must stay a small file."""


def kernel_table(recording: Recording) -> Table | None:
    """The kernels, sorted by total time; None without kernels."""
    columns = titled(
        "Kernel",
        "Calls per step",
        "Time per step",
        "Share of kernel time",
        "Shortest",
        "Mean",
        "Longest",
        "Tensor cores",
        "Blocks per SM",
        "Occupancy",
        words=("Tensor cores",),
    )
    rows = tuple(_kernel(row) for row in recording.kernels[:MOST_ROWS])
    return _wide(Table("Kernels by total time", columns, rows)) if rows else None


def operator_table(recording: Recording, most_rows: int = MOST_ROWS) -> Table | None:
    """The operators, in the recording's order; None without operators."""
    columns = titled("Operator", "Calls per step", "CPU self", "CPU total", "GPU self", "GPU total")
    rows = tuple(_operator(row) for row in recording.operators[:most_rows])
    return _wide(Table("Operators, time per step", columns, rows)) if rows else None


def module_table(recording: Recording) -> Table | None:
    """The tree of modules; None if none were recorded."""
    columns = titled("Module", "Calls per step", "CPU, forward", "GPU, forward")
    rows = tuple(_module(row) for row in recording.modules)
    return _wide(Table("Modules, time per step", columns, rows)) if rows else None


def overlap_table(recording: Recording) -> Table | None:
    """Total, exposed and overlapped time of each kind of operation; None if nothing was measured."""
    columns = titled("Operation", "Total", "Exposed", "Overlapped")
    listed = [(work, overlap) for work, overlap in recording.overlaps.items() if _is_worth_a_row(recording, overlap)]
    rows = tuple((Cell(WORK[work]), *_overlap(overlap)) for work, overlap in listed)
    measured = any(overlap is not None for _, overlap in listed)
    return Table("Total and exposed time", columns, rows, layout=Layout.NARROW) if measured else None


def communication_table(recording: Recording) -> Table | None:
    """Collectives by kind and purpose; None without collectives."""
    columns = titled(
        "Collective",
        "Purpose",
        "Calls per step",
        "Total",
        "Exposed",
        "Data per step",
        "Algorithm bandwidth",
        "Bus bandwidth",
        "Fastest message, bus",
        words=("Purpose",),
    )
    rows = tuple(_collective(row) for row in recording.communication)
    return _wide(Table("Communication by kind", columns, rows)) if rows else None


def _wide(table: Table) -> Table:
    """A table of many columns, without those that were not measured."""
    return measured_columns(replace(table, open_rows=OPEN_ROWS, layout=Layout.WIDE, is_sortable=True))


def _collective(row: CommunicationRow) -> tuple[Cell, ...]:
    return (
        Cell(COLLECTIVE[row.kind]),
        Cell(PURPOSE[row.purpose]),
        Cell(count(row.calls_per_step)),
        Cell(duration(row.total_ns_per_step)),
        Cell(duration(row.exposed_ns_per_step)),
        Cell(size(row.size_bytes_per_step)),
        Cell(rate(row.algorithm_bytes_per_s)),
        Cell(rate(row.bus_bytes_per_s)),
        Cell(rate(row.fastest_bus_bytes_per_s)),
    )


def _is_worth_a_row(recording: Recording, overlap: Overlap | None) -> bool:
    """Whether the operation took time, or was not measured on a recorded GPU."""
    return recording.device is not None if overlap is None else overlap.total_ns > 0


def _kernel(row: KernelRow) -> tuple[Cell, ...]:
    return (
        Cell(clipped(row.name, LONGEST_NAME), code=True),
        sorted_by(count(row.calls_per_step), row.calls_per_step),
        sorted_by(duration(row.total_ns_per_step), row.total_ns_per_step),
        Cell(
            percent(row.share_of_kernel_time),
            bar=across(min(1.0, row.share_of_kernel_time)),
            value=sort_key(row.share_of_kernel_time),
        ),
        sorted_by(duration(row.shortest_ns), row.shortest_ns),
        sorted_by(duration(None if row.shortest_ns is None else row.mean_ns), row.mean_ns),
        sorted_by(duration(row.longest_ns), row.longest_ns),
        Cell(NOT_MEASURED if row.tensor_cores is None else "yes" if row.tensor_cores else "no"),
        sorted_by(ratio(row.blocks_per_sm), row.blocks_per_sm),
        sorted_by(percent(row.occupancy_share), row.occupancy_share),
    )


def _operator(row: OperatorRow) -> tuple[Cell, ...]:
    return (
        Cell(clipped(row.name, LONGEST_NAME), code=True, more=_shapes_and_places(row)),
        sorted_by(count(row.calls_per_step), row.calls_per_step),
        sorted_by(duration(row.host_self_ns_per_step), row.host_self_ns_per_step),
        sorted_by(duration(row.host_total_ns_per_step), row.host_total_ns_per_step),
        sorted_by(duration(row.device_ns_per_step), row.device_ns_per_step),
        sorted_by(duration(row.device_total_ns_per_step), row.device_total_ns_per_step),
    )


def _shapes_and_places(row: OperatorRow) -> More | None:
    """The calls of an operator by input shapes and by place in the code; None if neither was recorded."""
    shapes = tuple(
        f"{shape.shapes}: {_calls(shape.calls_per_step)}, CPU {duration(shape.host_self_ns_per_step)}"
        + ("" if shape.device_ns_per_step is None else f", GPU {duration(shape.device_ns_per_step)}")
        for shape in row.shapes
    )
    places = tuple(
        f"{clipped_inside(_place(place.location), LONGEST_PLACE)}: {_calls(place.calls_per_step)}"
        for place in row.places
    )
    named = [number_of(len(rows), what) for rows, what in ((shapes, "shape"), (places, "place")) if rows]
    return More(" and ".join(named), (*shapes, *places)) if named else None


def _place(location: Location) -> str:
    words = location_words(location)
    return words if location.owner is None else f"{words}, in {frame_words(location.owner)}"


def _calls(per_step: float) -> str:
    return f"{count(per_step)} per step"


def _module(row: ModuleRow) -> tuple[Cell, ...]:
    return (
        Cell(clipped(row.name, LONGEST_NAME), code=True, depth=row.depth),
        sorted_by(count(row.calls_per_step), row.calls_per_step),
        sorted_by(duration(row.host_ns_per_step), row.host_ns_per_step),
        sorted_by(duration(row.device_ns_per_step), row.device_ns_per_step),
    )


def _overlap(overlap: Overlap | None) -> tuple[Cell, ...]:
    if overlap is None:
        return (Cell(duration(None)), Cell(duration(None)), Cell(percent(None)))
    hidden = 1 - overlap.exposed_ns / overlap.total_ns if overlap.total_ns else None
    return (Cell(duration(overlap.total_ns)), Cell(duration(overlap.exposed_ns)), Cell(percent(hidden)))


_NO_WAITS = (
    "without a GPU the simulation only adds up recorded CPU times, so this agreement does not validate predicted waits"
)


def replay_table(recording: Recording) -> Table | None:
    """The checks of the simulation and their results; None if nothing was simulated."""
    if recording.replay is None:
        return None
    columns = titled("Check", "Result", words=("Result",))
    rows = tuple(cells(*row) for row in _rows(recording.replay, has_device=recording.device is not None))
    return Table("Simulation checks", columns, rows)


def _rows(figures: ReplayFigures, *, has_device: bool) -> Iterator[tuple[str, str]]:
    """Label and result of each check; no GPU checks without a GPU."""
    judged = number_of(figures.judged_steps, "step")
    baseline = f"{duration(figures.baseline_step_ns)}, {_error(figures.baseline_error_share)} ({judged} compared)"
    yield "Simulated step, nothing changed", baseline if has_device else f"{baseline}; {_NO_WAITS}"
    if figures.paced_error_share is not None:
        most = f"largest difference: {_error(figures.paced_error_share)}"
        yield (
            "The same, with batches at the workers' mean rate",
            f"{most}; no independent check, as the rate comes from these steps",
        )
    if has_device:
        unexplained = f"{percent(figures.unexplained_share)} of the step"
        yield "The same, with a GPU that takes no time", _error(figures.null_model_error_share)
        yield "Waits for the GPU that the simulation does not explain", unexplained
    yield "CPU savings", _trust(figures.doubt)
    if has_device:
        yield "GPU savings", _trust(figures.device_doubt)
    if figures.joint_step_ns is not None:
        yield "Simulated step with all fixes", duration(figures.joint_step_ns)


def _error(share: float) -> str:
    direction = "longer" if share > 0 else "shorter"
    return f"{percent(abs(share))} {direction} than recorded" if share else "as recorded"


def _trust(doubt: str | None) -> str:
    return "simulated" if doubt is None else f"limits, no predictions: {doubt}"
