from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found
from traceadvisor.model.findings import Certainty
from traceadvisor.rules.gpu.gpu026_repeated_log_softmax import RepeatedLogSoftmax as Rule

SCORES, FLAT = [20, 8, 5000], [160, 5000]


def _step(
    *, of_loss: list[int] = FLAT, between: str = "aten::view", passes: int = 2, length: int = 100
) -> TraceBuilder:
    """A step with log_softmax of 10 us, a loss of 20 us with another one of 10 us, and 9 for each on the way back."""
    builder = TraceBuilder().step(0, 0, length).op("aten::mm", 0, 5)
    builder.op("aten::log_softmax", 10, 20, dims=[SCORES]).op("aten::_log_softmax", 11, 19, dims=[SCORES])
    builder.op(between, 21, 22, dims=[SCORES])
    builder.op("aten::cross_entropy_loss", 30, 50, dims=[of_loss, of_loss[:1]])
    builder.op("aten::log_softmax", 31, 41, dims=[of_loss]).op("aten::_log_softmax", 32, 40, dims=[of_loss])
    for number in range(passes):
        start = 60 + 10 * number
        builder.op("aten::_log_softmax_backward_data", start, start + 9, dims=[of_loss], thread=AUTOGRAD)
    return builder


def test_the_log_softmax_of_the_loss_and_one_of_the_backward_pass_are_needless(tmp_path: Path) -> None:
    found = finding(Rule(), _step(), tmp_path)
    assert found.claims.total_ns == 19_000
    assert found.saving.certainty is Certainty.LIMIT
    assert found.saving.high_ns == pytest.approx(1.5 * 19_000)  # other work may become shorter, too
    assert evidence(found, "losses of values with log_softmax") == 1


@pytest.mark.parametrize(
    "builder",
    [
        _step(of_loss=[160, 40]),  # other values
        _step(of_loss=[800_000]),  # a single sample of other classes
        _step(between="aten::mul"),
        TraceBuilder()
        .step(0, 0, 100)
        .op("aten::cross_entropy_loss", 30, 50, dims=[FLAT])
        .op("aten::log_softmax", 31, 41),
    ],
)
def test_a_loss_of_other_values_is_clear(builder: TraceBuilder, tmp_path: Path) -> None:
    assert clear(Rule(), builder, tmp_path).value == 0


@pytest.mark.parametrize("passes", [1, 3])
def test_a_loss_of_the_scores_beside_log_softmax_is_clear(passes: int, tmp_path: Path) -> None:
    """As where ``log_softmax`` is for a figure only."""
    assert clear(Rule(), _step(passes=passes), tmp_path).value == 0


def test_two_losses_of_the_same_scores_add_their_gradients_and_are_clear(tmp_path: Path) -> None:
    """As in distillation, whose second loss takes ``log_softmax``."""
    builder = _step().op("aten::add", 80, 84, thread=AUTOGRAD)
    assert clear(Rule(), builder, tmp_path).value == 0


def test_with_a_gpu_the_time_is_that_of_the_kernels(tmp_path: Path) -> None:
    builder = _step().launch(33, 34, kernel=(45, 85))
    assert Captured(builder, tmp_path).finding(Rule()).claims.total_ns == 40_000


@pytest.mark.parametrize(("length", "found"), [(1900, True), (1901, False)])
def test_it_counts_from_one_percent_of_the_step(length: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(Rule(), _step(length=length), tmp_path) is found
