"""Kernels, operators and overlapped work of one recording as tables.

The use of device memory as the templates read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traceadvisor.model.report import KernelRow, OperatorRow, Overlap, Recording
from traceadvisor.model.step_memory import MemoryRelief, StepMemory
from traceadvisor.rendering.charts.drawing import across
from traceadvisor.rendering.table import Cell, Column, Table, cells, measured_columns
from traceadvisor.rendering.units import NOT_MEASURED, count, duration, percent, ratio, size
from traceadvisor.rendering.words import WORK
from traceadvisor.text.cleaning import clipped

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


OPEN_MEMORY_ROWS = 4
"""Steps in the open; most are alike."""


@dataclass(frozen=True, slots=True)
class MemoryView:
    """Two tables."""

    steps: Table
    relief: Table


def memory_view(recording: Recording) -> MemoryView | None:
    """What the peak of each step is made of, fullest first, and what would make room; None where it is not known."""
    if recording.memory is None:
        return None
    titles = ("Peak", "Held between steps", "Activations", "Of the peak", "Gradients, workspaces, temporary")
    columns = (Column("Step", numeric=False), *map(Column, titles))
    fullest_first = sorted(recording.memory.steps, key=lambda step: -step.peak_bytes)
    ways = (Column("Way", numeric=False), Column("Would free"), Column("Taken for granted", numeric=False))
    autotuned = recording.captured is not None and recording.captured.settings.cudnn_benchmark is True
    rows = tuple(cells(*row) for row in _ways(recording.memory.relief, autotuned=autotuned))
    return MemoryView(
        Table("Device memory at the peak of each step", columns, tuple(map(_step, fullest_first)), OPEN_MEMORY_ROWS),
        Table("What would make room", ways, rows),
    )


def _step(step: StepMemory) -> tuple[Cell, ...]:
    return cells(
        count(step.index),
        size(step.peak_bytes),
        size(step.state_bytes),
        size(step.activations_bytes),
        percent(step.activations_share),
        size(step.rest_bytes),
    )


def _ways(relief: MemoryRelief, *, autotuned: bool) -> Iterator[tuple[str, str, str]]:
    if relief.mixed_precision_bytes is not None:
        yield "Mixed precision", size(relief.mixed_precision_bytes), "all activations are float32 now"
    yield "Gradient checkpointing", size(relief.checkpointing_bytes), "half of the activations is computed again"
    yield "Accumulating the gradients of two half batches", size(relief.accumulation_bytes), "activations alone grow"
    if autotuned:
        yield "cuDNN autotuning off", NOT_MEASURED, "workspaces of the algorithms that it chose; a second run tells"
