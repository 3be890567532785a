"""How long the steps of a whole run take, and whether recording them disturbed them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from traceadvisor.model.run import StepState, TimedStep

DISTURBED_SHARE = 0.10
"""Difference between recorded and undisturbed steps above which the recording no longer shows the run."""

NOT_COUNTED = {
    StepState.SETTLING: "it was recorded too soon after the profiler had stalled the loop",
    StepState.STALLED: "the profiler started or exported within it",
    StepState.OTHER: "it is not a training step",
}
"""Why a recorded step is left out of means."""


@dataclass(frozen=True, slots=True)
class RunTiming:
    """Medians over the steps of a run; None where there are no such steps."""

    undisturbed_ns: float | None
    """Of the steps that no profiler touched, the first one apart."""

    undisturbed_loader_ns: float | None
    """Time in the training loader, of the same steps."""

    recorded_ns: float | None
    fetches_per_step: float | None

    @property
    def disturbance_share(self) -> float | None:
        """How much longer recorded steps take than undisturbed ones; negative where they are shorter."""
        if not self.undisturbed_ns or self.recorded_ns is None:
            return None
        return self.recorded_ns / self.undisturbed_ns - 1


def run_timing(steps: Iterable[TimedStep]) -> RunTiming:
    """The medians of a run; the first step, which starts everything up, counts nowhere."""
    later = [step for step in steps if step.index > 0]
    plain = [step for step in later if step.state is StepState.PLAIN]
    recorded = [step for step in later if step.state is StepState.RECORDED]
    return RunTiming(
        _median(step.duration_ns for step in plain),
        _median(step.loader_ns for step in plain),
        _median(step.duration_ns for step in recorded),
        _median(step.fetches for step in plain or recorded),
    )


def _median(values: Iterable[int]) -> float | None:
    found = list(values)
    return float(median(found)) if found else None
