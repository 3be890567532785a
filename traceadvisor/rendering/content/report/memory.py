"""GPU memory of a recording: over time, at its peak, and by operator."""

from __future__ import annotations

from collections.abc import Iterator

from traceadvisor.model.memory_figures import OperatorMemory
from traceadvisor.model.report import Recording
from traceadvisor.rendering.content.memory.document import recording_blocks
from traceadvisor.rendering.content.report.tables import LONGEST_NAME
from traceadvisor.rendering.document.blocks import Block, Group, Prose, Tone
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, sorted_by
from traceadvisor.rendering.units import count, size
from traceadvisor.text.cleaning import clipped

OPEN_MEMORY_ROWS = 4
"""Operators shown unfolded."""


def memory_blocks(recording: Recording, anchor: str) -> Iterator[Block]:
    """Memory over time, at the peak, ways to reduce it, and by operator, as far as it was recorded."""
    if recording.device_memory is not None:
        yield from recording_blocks(recording.device_memory, anchor)
    if table := _operator_memory(recording):
        yield Group(table.caption, (Prose(BY_OPERATOR, Tone.QUIET), table))


BY_OPERATOR = (
    "Means per typical step. An allocation counts for the innermost operator around it; memory may be freed in another "
    "operator."
)


def _operator_memory(recording: Recording) -> Table | None:
    """The operators that allocate GPU memory; None where the allocator was not recorded."""
    if not recording.memory_by_operator:
        return None
    titles = ("Allocations per step", "Allocated per step", "Allocated less freed")
    columns = (Column("Operator", numeric=False), *map(Column, titles))
    rows = tuple(map(_operator, recording.memory_by_operator))
    return Table("GPU memory by operator", columns, rows, OPEN_MEMORY_ROWS, Layout.WIDE, is_sortable=True)


def _operator(row: OperatorMemory) -> tuple[Cell, ...]:
    net = row.net_bytes_per_step
    return (
        Cell(clipped(row.operator, LONGEST_NAME), code=True),
        sorted_by(count(row.allocations_per_step), row.allocations_per_step),
        sorted_by(size(row.allocated_bytes_per_step), row.allocated_bytes_per_step),
        sorted_by(f"-{size(-net)}" if net < 0 else size(net), net),
    )
