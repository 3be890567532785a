"""How well the simulation reproduces a recording's steps, and the step time with all fixes."""

from __future__ import annotations

from abc import ABC
from enum import Enum

from traceadvisor.frozen import frozen
from traceadvisor.model.json_hints import MaybeNan
from traceadvisor.model.saving import Reason


class ReplayStatus(Enum):
    """Whether the step could be simulated well enough to predict savings from it."""

    TRUSTED = "trusted"
    NOT_TRUSTED = "not_trusted"
    NOT_RUN = "not_run"


@frozen
class ReplayFigures:
    """The unchanged simulation compared with the recording. Errors are positive where the simulation is longer."""

    judged_steps: int
    """Number of steps compared: all simulated ones except the first and the last."""

    baseline_step_ns: float
    """The simulated step without any change."""

    baseline_error_share: MaybeNan
    null_model_error_share: MaybeNan
    """Error of a simulation in which the device takes no time: close to 0 where the CPU sets the pace."""

    unexplained_share: MaybeNan
    """Share of the step in waits for the device that the simulation does not explain."""

    doubt: Reason | None
    """Why simulated savings are less certain; None where the simulation is trusted."""

    device_doubt: Reason | None
    """The same for savings of GPU time."""

    joint_step_ns: float | None = None
    """The simulated step with all fixes that can be simulated; None where there are none."""

    paced_error_share: float | None = None
    """Largest error of a step, or of a round of workers, with batches at the workers' mean pace, which could not be
    validated. None where workers do not set the pace."""

    @property
    def status(self) -> ReplayStatus:
        """Whether savings are taken from the simulation."""
        return ReplayStatus.NOT_TRUSTED if self.doubt else ReplayStatus.TRUSTED


class WhatIf(ABC):  # noqa: B024  # the model does not know what it does
    """A change that can be simulated."""

    __slots__ = ()
