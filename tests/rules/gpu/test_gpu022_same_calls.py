from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Certainty, Skipped
from traceadvisor.model.location import Location
from traceadvisor.model.run import SameCalls as Found
from traceadvisor.rules.gpu.gpu022_same_calls import SameCalls

FIRST, AGAIN = Location("train.py", 59, "main"), Location("train.py", 66, "main")


def _step() -> TraceBuilder:
    """A forward pass of 30 us and a backward pass of 60 us."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 30)
    return builder.op("autograd::engine::evaluate_function: MmBackward0", 35, 95)


def _captured(folder: Path, share: float, gradient_share: float = 0.0, *, again: Location = AGAIN) -> Captured:
    found = Found(share, gradient_share, 11, 2, FIRST, again)
    return Captured(_step(), folder).with_settings(same_calls=found)


def test_a_model_that_runs_twice_on_the_same_input_saves_one_of_the_two(tmp_path: Path) -> None:
    found = _captured(tmp_path, 0.2).finding(SameCalls())
    assert found.fix.summary.startswith("Keep the first result")
    assert found.fix.change
    assert "detach()" in found.fix.change
    assert found.saving.certainty is Certainty.LIMIT
    assert found.saving.high_ns == pytest.approx(20_000)
    assert found.locations == (AGAIN, FIRST)
    assert evidence(found, "operators called again per step") == 11


def test_calls_with_gradients_save_their_part_of_the_backward_pass_too(tmp_path: Path) -> None:
    # The backward pass takes twice as long as the forward pass: 4% and 2 x 3% of the step.
    assert _captured(tmp_path, 0.04, 0.03).finding(SameCalls()).saving.high_ns == pytest.approx(10_000)


def test_no_fix_saves_more_than_the_step(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.6, 0.6).finding(SameCalls()).saving.high_ns == 100_000


def test_a_function_that_is_called_several_times_is_called_once(tmp_path: Path) -> None:
    found = _captured(tmp_path, 0.2, again=FIRST).finding(SameCalls())
    assert found.fix.summary.startswith("Call this function once")
    assert found.locations == (FIRST,)


def test_less_than_five_percent_of_the_step_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.049).clear(SameCalls()).value == 0.049
    assert _captured(tmp_path, 0.05).is_found(SameCalls())


def test_steps_in_which_nothing_is_computed_again_are_clear(tmp_path: Path) -> None:
    nothing = Captured(_step(), tmp_path).with_settings(same_calls=Found(0.0, 0.0, 0, 2))
    assert nothing.clear(SameCalls()).value == 0


def test_without_followed_calls_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(SameCalls(), _step(), tmp_path)
    outcome = Captured(_step(), tmp_path).with_settings().outcome(SameCalls())
    assert isinstance(outcome, Skipped)
    assert "followed no calls" in outcome.reason
