"""Tables of one recording: kernels, operators, overlap, and simulation checks."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.communication import CommunicationRow
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import KernelRow, OperatorRow, Overlap, Recording
from traceadvisor.rendering.charts.drawing import across
from traceadvisor.rendering.table import Cell, Column, Table, cells, measured_columns
from traceadvisor.rendering.units import count, duration, number_of, percent, rate, ratio, size
from traceadvisor.rendering.words import COLLECTIVE, PURPOSE, WORK
from traceadvisor.text.cleaning import clipped

OPEN_ROWS = 8
"""Rows shown unfolded."""

LONGEST_NAME = 240
"""Characters of a kernel name; the parts that differ between template instances come early."""

MOST_ROWS = 40
"""The JSON report has the remaining rows; a page with three recordings must stay a small file."""


def kernel_table(recording: Recording) -> Table | None:
    """The kernels, sorted by total time; None without kernels."""
    columns = (
        Column("Kernel", numeric=False),
        Column("Calls per step"),
        Column("Time per step"),
        Column("Share of kernel time"),
        Column("Blocks per SM"),
        Column("Occupancy"),
    )
    rows = tuple(_kernel(row) for row in recording.kernels[:MOST_ROWS])
    return measured_columns(Table("Kernels by total time", columns, rows, OPEN_ROWS)) if rows else None


def operator_table(recording: Recording) -> Table | None:
    """The operators, in the recording's order; None without operators."""
    columns = (
        Column("Operator", numeric=False),
        Column("Calls per step"),
        Column("Self CPU time per step"),
        Column("GPU time per step"),
    )
    rows = tuple(_operator(row) for row in recording.operators[:MOST_ROWS])
    return measured_columns(Table("Operators", columns, rows, OPEN_ROWS)) if rows else None


def overlap_table(recording: Recording) -> Table | None:
    """Total, exposed and overlapped time of each kind of operation; None if nothing was measured."""
    columns = (
        Column("Operation", numeric=False),
        Column("Total"),
        Column("Exposed"),
        Column("Overlapped"),
    )
    listed = [(work, overlap) for work, overlap in recording.overlaps.items() if _is_worth_a_row(recording, overlap)]
    rows = tuple((Cell(WORK[work]), *_overlap(overlap)) for work, overlap in listed)
    measured = any(overlap is not None for _, overlap in listed)
    return Table("Total and exposed time", columns, rows) if measured else None


def communication_table(recording: Recording) -> Table | None:
    """Collectives by kind and purpose; None without collectives."""
    columns = (
        Column("Collective", numeric=False),
        Column("Purpose", numeric=False),
        Column("Calls per step"),
        Column("Total"),
        Column("Exposed"),
        Column("Data per step"),
        Column("Algorithm bandwidth"),
        Column("Bus bandwidth"),
        Column("Fastest message, bus"),
    )
    rows = tuple(_collective(row) for row in recording.communication)
    return measured_columns(Table("Communication by kind", columns, rows, OPEN_ROWS)) if rows else None


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
        Cell(count(row.calls_per_step)),
        Cell(duration(row.total_ns_per_step)),
        Cell(percent(row.share_of_kernel_time), bar=across(min(1.0, row.share_of_kernel_time))),
        Cell(ratio(row.blocks_per_sm)),
        Cell(percent(row.occupancy_share)),
    )


def _operator(row: OperatorRow) -> tuple[Cell, ...]:
    return (
        Cell(clipped(row.name, LONGEST_NAME), code=True),
        Cell(count(row.calls_per_step)),
        Cell(duration(row.host_self_ns_per_step)),
        Cell(duration(row.device_ns_per_step)),
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
    columns = (Column("Check", numeric=False), Column("Result", numeric=False))
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
    return "simulated" if doubt is None else f"upper limits only: {doubt}"
