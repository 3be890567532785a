"""Which of the recorded steps are replayed."""

from __future__ import annotations

from statistics import median

from traceadvisor.model.steps import Step, StepTable

MOST_STEPS = 8
"""More of them tell nothing new and cost time."""

FEWEST_STEPS = 3
"""One to lead in, one to look at, one to follow."""


def chosen_steps(table: StepTable) -> tuple[Step, ...]:
    """The kept steps nearest to the median, in order of time; those of no length hold nothing to replay."""
    filled = [step for step in table.kept if step.host_end_ns > step.host_start_ns]
    if not filled:
        return ()
    middle = median(step.duration_ns for step in filled)
    nearest = sorted(filled, key=lambda step: abs(step.duration_ns - middle))[:MOST_STEPS]
    return tuple(sorted(nearest, key=lambda step: step.start_ns))


def measured_step_ns(table: StepTable) -> float | None:
    """Median of the kept steps, the first and the last apart where there are others; None where none is kept."""
    durations = [step.duration_ns for step in table.kept]
    return float(median(durations[1:-1] or durations)) if durations else None
