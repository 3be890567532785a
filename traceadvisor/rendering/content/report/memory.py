"""GPU memory of a recording: over time, at the peak of each step, and ways to reduce it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traceadvisor.model.report import Recording
from traceadvisor.model.step_memory import MemoryOverTime, MemoryRelief, OperatorMemory, StepMemory
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.drawing import Chart, LegendEntry
from traceadvisor.rendering.charts.palette import DEVICE_PAINTS
from traceadvisor.rendering.charts.trend import Subject, Trend, trend_chart
from traceadvisor.rendering.content.report.tables import LONGEST_NAME
from traceadvisor.rendering.document.blocks import Block, Group, Prose, Tone
from traceadvisor.rendering.document.table import Cell, Column, Layout, Table, cells, sorted_by, titled
from traceadvisor.rendering.units import NOT_MEASURED, count, percent, size
from traceadvisor.text.cleaning import clipped


def memory_chart(memory: MemoryOverTime | None, chart_id: str) -> Chart | None:
    """Memory used by tensors and reserved by PyTorch over time; None without data."""
    if memory is None or memory.time_ns[-1] <= memory.time_ns[0]:
        return None
    clock = RunClock(int(memory.time_ns[0]), int(memory.time_ns[-1]))
    subject = Subject("GPU memory", size, over="the recorded steps")
    return trend_chart(subject, list(_trends(memory)), clock, chart_id)


def _trends(memory: MemoryOverTime) -> Iterator[Trend]:
    lines = (("In use by tensors", memory.in_use_bytes), ("Reserved by PyTorch", memory.reserved_bytes))
    for paint, (name, held_bytes) in zip(DEVICE_PAINTS, lines, strict=False):  # there are more colours
        if held_bytes is not None:
            entry = LegendEntry(paint, name, f"peak {size(float(held_bytes.max()))}")
            yield Trend(
                entry, memory.time_ns, held_bytes.astype(np.float64), np.zeros(memory.time_ns.size, dtype=np.bool_)
            )


OPEN_MEMORY_ROWS = 4
"""Steps shown unfolded; most are alike."""


def operator_memory_table(recording: Recording) -> Table | None:
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


def memory_blocks(recording: Recording, anchor: str) -> Iterator[Block]:
    """Memory over time, at each step's peak, ways to reduce it, and by operator, as far as it was recorded."""
    if chart := memory_chart(recording.memory_over_time, anchor):
        yield chart
    if recording.memory is not None:
        autotuned = recording.captured is not None and recording.captured.settings.cudnn_benchmark is True
        peaks, ways = _peaks(recording.memory.steps), _relief(recording.memory.relief, autotuned=autotuned)
        yield Group(peaks.caption, (Prose(PEAKS, Tone.QUIET), peaks))
        yield Group(ways.caption, (Prose(RELIEF, Tone.QUIET), ways))
    if table := operator_memory_table(recording):
        yield Group(table.caption, (Prose(BY_OPERATOR, Tone.QUIET), table))


PEAKS = (
    "Memory used by tensors at the peak of each step. Activations are the growth from the start of the step to the "
    "start of the backward pass."
)
RELIEF = (
    "These are estimates for the step with the highest peak, each change by itself. Mixed precision and accumulation "
    "can change the training result. Checkpointing makes the step longer."
)
BY_OPERATOR = (
    "Means per typical step. An allocation counts for the innermost operator around it; memory may be freed in another "
    "operator."
)


def _peaks(steps: Sequence[StepMemory]) -> Table:
    """The steps, highest peak first."""
    titles = ("Peak", "Held between steps", "Activations", "Activations, share", "Gradients, workspaces, temporary")
    columns = (Column("Step", numeric=False), *map(Column, titles))
    rows = tuple(map(_step, sorted(steps, key=lambda step: -step.peak_bytes)))
    return Table("GPU memory at the peak of each step", columns, rows, OPEN_MEMORY_ROWS, Layout.NARROW)


def _relief(relief: MemoryRelief, *, autotuned: bool) -> Table:
    columns = titled("Change", "Frees", "Assumption", words=("Assumption",))
    return Table("Ways to reduce the peak", columns, tuple(cells(*row) for row in _ways(relief, autotuned=autotuned)))


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
        yield "Mixed precision", size(relief.mixed_precision_bytes), "all activations are in float32 now"
    yield "Gradient checkpointing", size(relief.checkpointing_bytes), "half of the activations are recomputed"
    accumulated = size(relief.accumulation_bytes)
    yield "Gradient accumulation over two half batches", accumulated, "only activations depend on the batch size"
    if autotuned:
        yield "cuDNN autotuning off", NOT_MEASURED, "frees the workspaces of autotuned algorithms; measure it"
