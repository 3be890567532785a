"""The step time that a reader is told first, and what it is a median of."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.report import Recording
from traceadvisor.model.run import undisturbed_count
from traceadvisor.model.steps import StepSource
from traceadvisor.rendering.units import duration, number_of

MEDIAN = "median"


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long a step takes, and how that is known."""

    ns: float | None
    kind: str
    """``undisturbed median of 412 steps``, else ``median``; of a single step, that it is one."""

    beside: str | None
    """What stands next to it: ``recorded median 177.6 ms, mean 179.0 ms``, else ``mean 179.0 ms``."""


def step_time(recording: Recording) -> StepTime:
    """The median of the steps that no profiler touched; where none were timed, that of the recorded ones."""
    mean = None if recording.mean_step_ns is None else f"mean {duration(recording.mean_step_ns)}"
    if recording.undisturbed_median_step_ns is None:
        if sum(row.step.kept for row in recording.steps) == 1:
            whole = recording.step_source is StepSource.WINDOW
            return StepTime(recording.median_step_ns, "the whole recording" if whole else "the only one recorded", None)
        return StepTime(recording.median_step_ns, MEDIAN, mean)
    steps = undisturbed_count(recording.captured) if recording.captured else 0
    kind = f"undisturbed median of {number_of(steps, 'step')}" if steps else "undisturbed median"
    recorded = None if recording.median_step_ns is None else f"recorded median {duration(recording.median_step_ns)}"
    return StepTime(recording.undisturbed_median_step_ns, kind, ", ".join(filter(None, (recorded, mean))) or None)
