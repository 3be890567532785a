"""Tables of one recording: kernels, operators, overlap, memory by operator, and simulation checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from traceadvisor.frozen import replace
from traceadvisor.model.communication import CommunicationRow
from traceadvisor.model.location import Location
from traceadvisor.model.memory_figures import OperatorMemory
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import KernelRow, ModuleRow, OperatorRow, Overlap, Recording
from traceadvisor.model.saving import Reason
from traceadvisor.rendering.charts.drawing import across
from traceadvisor.rendering.document.table import (
    Cell,
    Layout,
    More,
    Table,
    by_column,
    cells,
    measured_columns,
    sorted_by,
    timed,
    titled,
)
from traceadvisor.rendering.origins import frame_words, location_words
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, number_of, percent, rate, ratio, size
from traceadvisor.rendering.words import COLLECTIVE, PURPOSE, WORK, reason_words
from traceadvisor.text.cleaning import clipped, clipped_inside

T = TypeVar("T")

OPEN_ROWS = 8
"""Rows shown unfolded."""

OPEN_MEMORY_ROWS = 4

LONGEST_NAME = 240
"""Characters of a kernel name; the parts that differ between template instances come early."""

LONGEST_PLACE = 120
"""Characters of a place in the code."""

MOST_ROWS = 40
"""The JSON report has the remaining rows; a page with three recordings must stay a small file."""


_KERNEL: Mapping[str, Callable[[KernelRow], Cell]] = {
    "Kernel": lambda row: _code(row.name),
    "Calls per step": lambda row: _counted(row.calls_per_step),
    "Time per step": lambda row: timed(row.total_ns_per_step),
    "Share of kernel time": lambda row: replace(
        sorted_by(percent(row.share_of_kernel_time), row.share_of_kernel_time),
        bar=across(min(1.0, row.share_of_kernel_time)),
    ),
    "Shortest": lambda row: timed(row.shortest_ns),
    "Mean": lambda row: timed(None if row.shortest_ns is None else row.mean_ns),
    "Longest": lambda row: timed(row.longest_ns),
    "Tensor cores": lambda row: Cell(NOT_MEASURED if row.tensor_cores is None else "yes" if row.tensor_cores else "no"),
    "Blocks per SM": lambda row: sorted_by(ratio(row.blocks_per_sm), row.blocks_per_sm),
    "Occupancy": lambda row: sorted_by(percent(row.occupancy_share), row.occupancy_share),
}

_OPERATOR: Mapping[str, Callable[[OperatorRow], Cell]] = {
    "Operator": lambda row: replace(_code(row.name), more=_shapes_and_places(row)),
    "Calls per step": lambda row: _counted(row.calls_per_step),
    "CPU self": lambda row: timed(row.host_self_ns_per_step),
    "CPU total": lambda row: timed(row.host_total_ns_per_step),
    "GPU self": lambda row: timed(row.device_ns_per_step),
    "GPU total": lambda row: timed(row.device_total_ns_per_step),
}

_MODULE: Mapping[str, Callable[[ModuleRow], Cell]] = {
    "Module": lambda row: replace(_code(row.name), depth=row.depth),
    "Calls per step": lambda row: _counted(row.calls_per_step),
    "CPU, forward": lambda row: timed(row.host_ns_per_step),
    "GPU, forward": lambda row: timed(row.device_ns_per_step),
}

_COMMUNICATION: Mapping[str, Callable[[CommunicationRow], Cell]] = {
    "Collective": lambda row: Cell(COLLECTIVE[row.kind]),
    "Purpose": lambda row: Cell(PURPOSE[row.purpose]),
    "Calls per step": lambda row: Cell(count(row.calls_per_step)),
    "Total": lambda row: Cell(duration(row.total_ns_per_step)),
    "Exposed": lambda row: Cell(duration(row.exposed_ns_per_step)),
    "Data per step": lambda row: Cell(size(row.size_bytes_per_step)),
    "Algorithm bandwidth": lambda row: Cell(rate(row.algorithm_bytes_per_s)),
    "Bus bandwidth": lambda row: Cell(rate(row.bus_bytes_per_s)),
    "Fastest message, bus": lambda row: Cell(rate(row.fastest_bus_bytes_per_s)),
}

_MEMORY: Mapping[str, Callable[[OperatorMemory], Cell]] = {
    "Operator": lambda row: _code(row.operator),
    "Allocations per step": lambda row: _counted(row.allocations_per_step),
    "Allocated per step": lambda row: sorted_by(size(row.allocated_bytes_per_step), row.allocated_bytes_per_step),
    "Allocated less freed": lambda row: _net(row.net_bytes_per_step),
}


def kernel_table(recording: Recording) -> Table | None:
    """The kernels, sorted by total time; None without kernels."""
    return _wide("Kernels by total time", recording.kernels[:MOST_ROWS], _KERNEL, ("Tensor cores",))


def operator_table(recording: Recording, most_rows: int = MOST_ROWS) -> Table | None:
    """The operators, in the recording's order; None without operators."""
    return _wide("Operators, time per step", recording.operators[:most_rows], _OPERATOR)


def module_table(recording: Recording) -> Table | None:
    """The tree of modules; None if none were recorded."""
    return _wide("Modules, time per step", recording.modules, _MODULE)


def communication_table(recording: Recording) -> Table | None:
    """Collectives by kind and purpose; None without collectives."""
    return _wide("Communication by kind", recording.communication, _COMMUNICATION, ("Purpose",))


def memory_table(recording: Recording) -> Table | None:
    """The operators that allocate GPU memory; None where the allocator was not recorded."""
    if not recording.memory_by_operator:
        return None
    parts = by_column(_MEMORY, recording.memory_by_operator)
    return Table("GPU memory by operator", *parts, OPEN_MEMORY_ROWS, Layout.WIDE, is_sortable=True)


def _wide(
    caption: str, rows: Sequence[T], columns: Mapping[str, Callable[[T], Cell]], words: Sequence[str] = ()
) -> Table | None:
    """A table of many columns, without those that were not measured; None without rows."""
    table = Table(caption, *by_column(columns, rows, words), OPEN_ROWS, Layout.WIDE, is_sortable=True)
    return measured_columns(table) if rows else None


def _code(name: str) -> Cell:
    return Cell(clipped(name, LONGEST_NAME), code=True)


def _counted(calls: float) -> Cell:
    return sorted_by(count(calls), calls)


def _net(bytes_per_step: float) -> Cell:
    return sorted_by(f"-{size(-bytes_per_step)}" if bytes_per_step < 0 else size(bytes_per_step), bytes_per_step)


def overlap_table(recording: Recording) -> Table | None:
    """Total, exposed and overlapped time of each kind of operation; None if nothing was measured."""
    columns = titled("Operation", "Total", "Exposed", "Overlapped")
    listed = [(work, overlap) for work, overlap in recording.overlaps.items() if _is_worth_a_row(recording, overlap)]
    rows = tuple((Cell(WORK[work]), *_overlap(overlap)) for work, overlap in listed)
    measured = any(overlap is not None for _, overlap in listed)
    return Table("Total and exposed time", columns, rows, layout=Layout.NARROW) if measured else None


def _is_worth_a_row(recording: Recording, overlap: Overlap | None) -> bool:
    """Whether the operation took time, or was not measured on a recorded GPU."""
    return recording.device is not None if overlap is None else overlap.total_ns > 0


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
        yield "Step with the simulated fixes", duration(figures.joint_step_ns)


def _error(share: float) -> str:
    direction = "longer" if share > 0 else "shorter"
    return f"{percent(abs(share))} {direction} than recorded" if share else "as recorded"


def _trust(doubt: Reason | None) -> str:
    return "simulated" if doubt is None else f"simulated, less certain: {reason_words(doubt)}"
