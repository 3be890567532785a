from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Certainty, Skipped
from traceadvisor.model.location import Constructed, Location, Role
from traceadvisor.model.run import UnusedGradients
from traceadvisor.rules.gpu.gpu016_unused_gradients import UnusedGradients as Rule

TEACHER = Constructed(Role.UNTRAINED, "Teacher", Location("train.py", 12, "main"))


def _step() -> TraceBuilder:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 40)
    return builder.op("autograd::engine::evaluate_function: MmBackward0", 45, 95)


def _captured(
    folder: Path, share: float = 0.4, *, builder: TraceBuilder | None = None, is_cleared: bool = False
) -> Captured:
    found = UnusedGradients(share, 6, 6, is_cleared)
    return Captured(builder or _step(), folder).with_settings(unused_gradients=found, constructed=(TEACHER,))


def test_a_teacher_that_is_not_trained_saves_its_part_of_the_backward_pass(tmp_path: Path) -> None:
    found = _captured(tmp_path).finding(Rule())
    assert found.fix.summary == "Compute no gradients for the Teacher: no optimizer updates it"
    assert "requires_grad_(False)" in (found.fix.change or "")
    assert found.saving.certainty is Certainty.CALCULATED
    saving = found.saving
    assert (saving.low_ns, saving.expected_ns, saving.high_ns) == pytest.approx((36_000, 40_000, 44_000))
    assert found.locations == (TEACHER.place,)
    assert evidence(found, "parameter tensors with such gradients") == 6


def test_gradients_that_another_optimizer_clears_are_switched_off_for_that_loss(tmp_path: Path) -> None:
    fix = _captured(tmp_path, is_cleared=True).finding(Rule()).fix
    assert fix.summary == "Switch off the gradients of the Teacher in both passes of a loss that does not train it"
    assert "detach" not in (fix.change or "")  # it would cut off what lies before the model


def test_cleared_gradients_may_also_come_before_the_last_used_one(tmp_path: Path) -> None:
    # Measured are 10 of the 50 us of the backward pass.
    saving = _captured(tmp_path, 0.1, is_cleared=True).finding(Rule()).saving
    assert (saving.low_ns, saving.expected_ns, saving.high_ns) == pytest.approx((9_000, 10_000, 50_000))


def test_with_a_gpu_the_measured_time_of_the_cpu_is_an_upper_limit(tmp_path: Path) -> None:
    saving = _captured(tmp_path, builder=_step().launch(10, 12, kernel=(12, 95))).finding(Rule()).saving
    assert saving.certainty is Certainty.LIMIT
    assert saving.high_ns == pytest.approx(40_000)


def test_no_fix_saves_more_than_the_step(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.98).finding(Rule()).saving.high_ns == 100_000


def test_less_than_five_percent_of_the_measured_steps_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.049).clear(Rule()).value == 0.049
    assert _captured(tmp_path, 0.05).is_found(Rule())


def test_without_a_measurement_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(Rule(), _step(), tmp_path)
    outcome = Captured(_step(), tmp_path).with_settings().outcome(Rule())
    assert isinstance(outcome, Skipped)
    assert "measured no gradients" in outcome.reason
