"""The range of a simulated saving, from the low, the expected and the high assumptions about a fix."""

from __future__ import annotations

from traceadvisor.model.findings import Estimate
from traceadvisor.replay.gate import MOST_ERROR_SHARE, without_device
from traceadvisor.replay.replay import Replay
from traceadvisor.replay.simulate import simulate
from traceadvisor.replay.what_if import Edit, Scenario

UNTESTED_DEVICE = "after this fix the step waits for the GPU, and GPU savings could not be validated on this recording"
"""Caveat for savings of host work on a recording that does not validate the device model."""


def saving_range(replay: Replay, edit: Edit, step_ns: float) -> Estimate:
    """The saving of an edit in a step of this length; zero if it costs time."""
    shares = {scenario: replay.saving_share((edit,), scenario) for scenario in Scenario}
    low, expected, high = sorted(max(share, 0.0) * step_ns for share in shares.values())
    is_untested = _waits_for_untested_device(replay, edit, 1 - shares[Scenario.EXPECTED])
    return Estimate.simulated(low, expected, high, UNTESTED_DEVICE if is_untested else None)


def _waits_for_untested_device(replay: Replay, edit: Edit, left_share: float) -> bool:
    """Whether the edited step waits for the device although the device model was not validated."""
    if replay.gate.device_doubt is None:
        return False
    alone = without_device(edit.applied(replay.graph, Scenario.EXPECTED))
    return left_share - simulate(alone).interior_mean_ns() / max(replay.baseline_ns, 1.0) > MOST_ERROR_SHARE
