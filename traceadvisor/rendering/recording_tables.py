"""Kernels, operators and overlapped work of one recording as tables."""

from __future__ import annotations

from traceadvisor.model.report import KernelRow, OperatorRow, Overlap, Recording
from traceadvisor.rendering.charts.drawing import across
from traceadvisor.rendering.redaction import clipped
from traceadvisor.rendering.table import Cell, Column, Table, measured_columns
from traceadvisor.rendering.units import count, duration, percent, ratio
from traceadvisor.rendering.words import WORK

OPEN_ROWS = 8
"""Rows in the open; the rest is folded."""

LONGEST_NAME = 240
"""Characters of a kernel's name; what tells one instance of a template from the next comes early."""

MOST_ROWS = 40
"""What lies beyond is in the JSON report; three recordings have to stay a small file."""


def kernel_table(recording: Recording) -> Table | None:
    """The kernels by total time; None where there are none."""
    columns = (
        Column("Kernel", numeric=False),
        Column("Calls per step"),
        Column("Time per step"),
        Column("Of kernel time"),
        Column("Blocks per SM"),
        Column("Occupancy"),
    )
    rows = tuple(_kernel(row) for row in recording.kernels[:MOST_ROWS])
    return measured_columns(Table("Kernels by total time", columns, rows, OPEN_ROWS)) if rows else None


def operator_table(recording: Recording) -> Table | None:
    """The operators in the recording's order; None where there are none."""
    columns = (
        Column("Operator", numeric=False),
        Column("Calls per step"),
        Column("Host time itself, per step"),
        Column("Device time launched, per step"),
    )
    rows = tuple(_operator(row) for row in recording.operators[:MOST_ROWS])
    return measured_columns(Table("Operators", columns, rows, OPEN_ROWS)) if rows else None


def overlap_table(recording: Recording) -> Table | None:
    """How much of each kind of work is hidden behind something more useful; None where nothing was measured."""
    columns = (
        Column("Work", numeric=False),
        Column("Total"),
        Column("Exposed"),
        Column("Hidden"),
    )
    listed = [(work, overlap) for work, overlap in recording.overlaps.items() if _is_worth_a_row(recording, overlap)]
    rows = tuple((Cell(WORK[work]), *_overlap(overlap)) for work, overlap in listed)
    measured = any(overlap is not None for _, overlap in listed)
    return Table("Total and exposed work", columns, rows) if measured else None


def _is_worth_a_row(recording: Recording, overlap: Overlap | None) -> bool:
    """Work that was done, and work that was not measured although there is a device to do it."""
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
