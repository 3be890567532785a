"""The step time that a reader is told first, and what it is a median of."""

from __future__ import annotations

from dataclasses import dataclass

from traceadvisor.model.report import Recording
from traceadvisor.rendering.run_steps import undisturbed_count
from traceadvisor.rendering.units import duration, number_of


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long a step takes, and how that is known."""

    ns: float | None
    kind: str
    """``undisturbed median of 412 steps``, else ``median``."""

    beside: str | None
    """The figure that stands next to it: ``recorded 177.6 ms``, else ``mean 177.6 ms``."""


def step_time(recording: Recording) -> StepTime:
    """The median of the steps that no profiler touched; where none were timed, that of the recorded ones."""
    if recording.undisturbed_median_step_ns is None:
        return StepTime(recording.median_step_ns, "median", _figure("mean", recording.mean_step_ns))
    steps = undisturbed_count(recording.captured) if recording.captured else 0
    kind = f"undisturbed median of {number_of(steps, 'step')}" if steps else "undisturbed median"
    return StepTime(recording.undisturbed_median_step_ns, kind, _figure("recorded", recording.median_step_ns))


def _figure(name: str, ns: float | None) -> str | None:
    return None if ns is None else f"{name} {duration(ns)}"
