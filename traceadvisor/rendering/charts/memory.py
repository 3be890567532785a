"""Device memory over the recorded steps, by the allocator's own events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceadvisor.model.step_memory import MemoryOverTime
from traceadvisor.rendering.charts.clock import RunClock
from traceadvisor.rendering.charts.drawing import Chart, LegendEntry
from traceadvisor.rendering.charts.palette import DEVICE_PAINTS
from traceadvisor.rendering.charts.trend import Subject, Trend, trend_chart
from traceadvisor.rendering.units import size


def memory_chart(memory: MemoryOverTime | None, chart_id: str) -> Chart | None:
    """What tensors use and what torch holds, as lines; None where there is nothing to draw."""
    if memory is None or memory.time_ns[-1] <= memory.time_ns[0]:
        return None
    clock = RunClock(int(memory.time_ns[0]), int(memory.time_ns[-1]))
    subject = Subject("Device memory", size, over="the recorded steps")
    return trend_chart(subject, list(_trends(memory)), clock, chart_id)


def _trends(memory: MemoryOverTime) -> Iterator[Trend]:
    lines = (("In use by tensors", memory.in_use_bytes), ("Reserved by torch", memory.reserved_bytes))
    for paint, (name, held_bytes) in zip(DEVICE_PAINTS, lines, strict=False):  # there are more colours
        if held_bytes is not None:
            entry = LegendEntry(paint, name, f"peak {size(float(held_bytes.max()))}")
            yield Trend(
                entry, memory.time_ns, held_bytes.astype(np.float64), np.zeros(memory.time_ns.size, dtype=np.bool_)
            )
