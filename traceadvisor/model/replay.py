"""How far the simulation of a recording's steps can be trusted, and what it says of all fixes together.

A fix that can be tried on a recording; what it does to the recorded steps is the replay's matter.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from enum import Enum


class ReplayStatus(Enum):
    """Whether the step could be simulated well enough to predict savings from it."""

    TRUSTED = "trusted"
    NOT_TRUSTED = "not_trusted"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """The unchanged replay held against the recording; shares are 0..1, errors positive where the replay is longer."""

    judged_steps: int
    """Steps that were held against the recording."""

    baseline_step_ns: float
    """The replayed step, nothing changed."""

    baseline_error_share: float
    null_model_error_share: float
    """The error where the device is taken to need no time: close to 0 where the host alone sets the pace."""

    unexplained_share: float
    """Share of the step in waits for the device whose cause is not known."""

    doubt: str | None
    """Why nothing is replayed; None where the replay is trusted."""

    device_doubt: str | None
    """Why no change to the device's work is replayed; None where it is."""

    joint_step_ns: float | None = None
    """The step with all findings' fixes made that can be replayed; None where there are none."""

    paced_error_share: float | None = None
    """The error of the step, or turn of workers, that differs most where batches come at the mean pace of the recorded
    ones; None where workers do not set the pace."""

    @property
    def status(self) -> ReplayStatus:
        """Whether savings are replayed at all."""
        return ReplayStatus.NOT_TRUSTED if self.doubt else ReplayStatus.TRUSTED


class WhatIf(ABC):  # noqa: B024  # the model knows that there are such, not what they do
    """What a finding proposes, in a form that can be replayed."""

    __slots__ = ()
