from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Certainty, Skipped
from traceadvisor.model.run import IgnoredTargets
from traceadvisor.rules.gpu.gpu025_ignored_targets import IgnoredTargetsComputed as Rule

LOSS_AT = 40
BACKWARD = "autograd::engine::evaluate_function: "


Shapes = list[list[int]]
PRODUCT: Shapes = [[5000], [80, 32], [32, 5000], [], []]


def _step(product: Shapes = PRODUCT, scores: int = 80) -> TraceBuilder:
    """A step of 100 us: 20 in the model, 20 in the output layer, 10 in the loss, and 30 in their backward pass."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 20, dims=[[80, 32], [32, 32]])
    builder.op("aten::addmm", 20, LOSS_AT, dims=product)
    builder.op("aten::nll_loss_forward", LOSS_AT, 50, dims=[[scores, 5000], [80], [], [], []])
    return builder.op(f"{BACKWARD}AddmmBackward0", 60, 95).op("aten::mm", 60, 90, dims=[[5000, 80], [80, 32]])


def _captured(folder: Path, share: float = 0.5, *, builder: TraceBuilder | None = None) -> Captured:
    found = IgnoredTargets(share, target_count=80, class_count=5000)
    return Captured(builder or _step(), folder).with_settings(ignored_targets=found)


def test_scores_that_the_loss_leaves_out_save_their_part_of_the_output_layer(tmp_path: Path) -> None:
    found = _captured(tmp_path).finding(Rule())
    assert found.claims.total_ns == 60_000
    assert found.saving.certainty is Certainty.LIMIT
    assert (found.saving.expected_ns, found.saving.high_ns) == pytest.approx((0.9 * 30_000, 1.2 * 30_000))
    assert evidence(found, "share of the targets that the loss leaves out") == 0.5
    assert evidence(found, "scores for each") == 5000


def test_a_model_that_leaves_out_the_last_position_has_more_scores_than_targets(tmp_path: Path) -> None:
    builder = _step([[8, 11, 32], [5000, 32]], scores=88)
    assert _captured(tmp_path, builder=builder).finding(Rule()).claims.total_ns == 60_000


def test_an_output_layer_on_chosen_positions_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::addmm", 20, 90, dims=[[5000], [12, 32], [32, 5000]])
    assert _captured(tmp_path, builder=builder).clear(Rule()).value == 0


@pytest.mark.parametrize(("share", "is_found"), [(0.29, False), (0.3, True)])
def test_few_targets_without_a_loss_are_clear(share: float, tmp_path: Path, *, is_found: bool) -> None:
    assert _captured(tmp_path, share).is_found(Rule()) is is_found


def test_with_a_gpu_the_time_is_that_of_the_kernels(tmp_path: Path) -> None:
    builder = _step().launch(25, 26, kernel=(30, 70))
    assert _captured(tmp_path, builder=builder).finding(Rule()).claims.total_ns == 40_000


def test_without_a_capture_of_the_loss_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(Rule(), _step(), tmp_path)
    outcome = Captured(_step(), tmp_path).with_settings().outcome(Rule())
    assert isinstance(outcome, Skipped)
    assert "cross entropy" in outcome.reason
