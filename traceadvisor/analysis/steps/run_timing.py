"""How long the steps of a whole run take, and whether recording them disturbed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

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
    recorded_loader_ns: float | None
    fetches_per_step: float | None

    @property
    def disturbance_share(self) -> float | None:
        """How much longer recorded steps take than undisturbed ones; negative where they are shorter."""
        if not self.undisturbed_ns or self.recorded_ns is None:
            return None
        return self.recorded_ns / self.undisturbed_ns - 1

    @property
    def excess_ns(self) -> tuple[float, float]:
        """How much longer recorded steps take than undisturbed ones, and how much of that is in the loader.

        Nothing where either is not known; negative where recorded ones are shorter.
        """
        if not self.undisturbed_ns or not self.recorded_ns:
            return 0.0, 0.0
        loading_ns = (self.recorded_loader_ns or 0.0) - (self.undisturbed_loader_ns or 0.0)
        return self.recorded_ns - self.undisturbed_ns, loading_ns

    @property
    def undisturbed_share(self) -> float:
        """How long undisturbed steps take, over how long recorded ones do; 1 where they are no longer, or not known."""
        if not self.undisturbed_ns or not self.recorded_ns:
            return 1.0
        return min(self.undisturbed_ns / self.recorded_ns, 1.0)

    @property
    def loader_shares(self) -> tuple[float, float] | None:
        """Share of the step in the loader, of undisturbed and of recorded steps; None where either is not known."""
        if not self.undisturbed_ns or not self.recorded_ns:
            return None
        undisturbed_ns, recorded_ns = self.undisturbed_loader_ns or 0.0, self.recorded_loader_ns or 0.0
        return undisturbed_ns / self.undisturbed_ns, recorded_ns / self.recorded_ns


def run_timing(steps: Sequence[TimedStep], burst: int) -> RunTiming:
    """The medians of a run; the first step, which starts everything up, counts nowhere.

    Args:
        steps: every step of the run.
        burst: how many batches the loader delivers together, at least 1: one from each worker. A single step then
            waits for all of them or for none, so the medians are taken over means of so many successive steps.
    """
    later = [step for step in steps if step.index > 0]
    plain = [step for step in later if step.state is StepState.PLAIN]
    recorded = [step for step in later if step.state is StepState.RECORDED]
    return RunTiming(
        _median([step.duration_ns for step in plain], burst),
        _median([step.loader_ns for step in plain], burst),
        _median([step.duration_ns for step in recorded], burst),
        _median([step.loader_ns for step in recorded], burst),
        _median([step.fetches for step in plain or recorded], 1),
    )


def _median(values: Sequence[int], burst: int) -> float | None:
    """Median of the means of ``burst`` successive values; their mean where there are no more than that."""
    if not values:
        return None
    starts = range(max(len(values) - burst + 1, 1))
    return median(fmean(values[start : start + burst]) for start in starts)
