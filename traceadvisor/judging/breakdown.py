"""Breaks down the steps of a trace file, without rules and reports."""

from __future__ import annotations

from pathlib import Path

from traceadvisor.facts import Facts
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.report import StepRow
from traceadvisor.model.trace import MOST_DEVICES, Origin
from traceadvisor.parsing.trace_file import read_trace


def breakdown(path: Path | str, *, limits: Limits = LIMITS) -> dict[int | None, tuple[StepRow, ...]]:
    """The time of each step of a trace file by category.

    Data that only rules need (stacks, shapes, sizes, memory) and data that a capture stores beside its trace are not
    read.

    ``limits``: input limits, which protect against oversized files.

    Returns:
        The steps by device index; the index is None for a recording without device activity.

    Raises:
        InputError: the file cannot be read.
    """
    trace = read_trace(Origin(Path(path), "", "", ""), limits=limits, details=False)
    devices = trace.device_indices[:MOST_DEVICES] or (None,)
    return {device: Facts(trace, device, "").step_rows for device in devices}
