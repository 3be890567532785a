"""The shortest way from a trace file to where its time goes: no rules, no report, and nothing read for them."""

from __future__ import annotations

from pathlib import Path

from traceadvisor.facts import Facts
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.model.report import StepRow
from traceadvisor.model.trace import MOST_DEVICES, Origin
from traceadvisor.parsing.trace_file import read_trace


def breakdown(path: Path | str, *, limits: Limits = LIMITS) -> dict[int | None, tuple[StepRow, ...]]:
    """Where the time of each step of a trace file goes, by category.

    What only rules need (stacks, shapes, sizes, memory) is not read, nor what a capture knows beside its trace.

    Args:
        path: the trace file.
        limits: how much of it to read before it is taken for an attack.

    Returns:
        The steps as each device saw them, by its number; None stands for a recording without device activity.

    Raises:
        InputError: it cannot be read.
    """
    trace = read_trace(Origin(Path(path), "", "", ""), limits=limits, details=False)
    devices = trace.device_indices[:MOST_DEVICES] or (None,)
    return {device: Facts(trace, device, "").step_rows for device in devices}
