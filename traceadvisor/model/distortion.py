"""How far the recorded steps of a run lie from its undisturbed ones."""

from __future__ import annotations

from traceadvisor.frozen import frozen
from traceadvisor.model.saving import Doubt, Reason

DISTORTED_RATIO = 1.5
"""From this ratio on, a third of a recorded step or more is the profiler's, and shares of recorded steps are not shares
of the training. ``docs/decisions/0020-undistorted-times.md`` has the measurements."""

UNTYPICAL_RATIO = 3.0
"""From this ratio on, recorded steps that are longer by chance show little. At 5.6, a loop that took 56% of other steps
was missed."""

CHANGED_SHARE = 0.10
"""Difference between recorded and undisturbed steps that a report mentions."""


@frozen
class Distortion:
    """Recorded steps of a run beside its undisturbed ones: medians, as the step log has them.

    Time in the data loader was measured in both. How much longer a part of the rest became is unknown, except that
    recording hardly changes how long GPU operations take.
    """

    undisturbed_step_ns: float
    recorded_step_ns: float
    undisturbed_loader_ns: float
    """Time in the data loader of an undisturbed step."""

    recorded_loader_ns: float
    ratio_low: float | None = None
    """Lower end of the 95% interval of the ratio; None with too few undisturbed steps."""

    ratio_high: float | None = None
    gpu_work_ns: float | None = None
    """Time of a typical recorded step with a kernel, collective or copy on the GPU; None without a GPU."""

    @property
    def ratio(self) -> float:
        """Recorded step time over undisturbed step time."""
        return self.recorded_step_ns / self.undisturbed_step_ns

    @property
    def added_ns(self) -> float:
        """Time that recording added to a step; negative if recorded steps were shorter."""
        return self.recorded_step_ns - self.undisturbed_step_ns

    @property
    def undisturbed_rest_ns(self) -> float:
        """An undisturbed step without its time in the data loader."""
        return max(self.undisturbed_step_ns - self.undisturbed_loader_ns, 0.0)

    @property
    def undisturbed_loader_share(self) -> float:
        """Share of an undisturbed step in the data loader, 0..1."""
        return min(self.undisturbed_loader_ns / self.undisturbed_step_ns, 1.0)

    @property
    def is_strong(self) -> bool:
        """Whether shares of recorded steps do not show where training time goes."""
        return self.ratio >= DISTORTED_RATIO and not self.is_random

    @property
    def doubt(self) -> Reason | None:
        """Why times of recorded steps predict little; None if they predict those of undisturbed steps."""
        return Reason(Doubt.DISTORTED, self.ratio) if self.is_strong else None

    @property
    def is_random(self) -> bool:
        """Whether undisturbed steps differ from one another by no less than recorded steps differ from them."""
        return self.ratio_low is not None and self.ratio_high is not None and self.ratio_low <= 1 <= self.ratio_high

    @property
    def is_untypical(self) -> bool:
        """Whether recorded steps took far longer by chance, as beside other programs, so that they show little."""
        return self.ratio >= UNTYPICAL_RATIO and self.is_random
