from pathlib import Path

import pytest

from tests.build import AUTOGRAD, TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped, twice
from traceadvisor.rules.gpu.gpu012_conv_bias_before_norm import ConvBiasBeforeNorm

IMAGES, WEIGHT, BIAS = [8, 3, 32, 32], [16, 3, 3, 3], [16]
STACK = ("torch/nn/modules/conv.py(40): forward", "net.py(27): forward", "train.py(80): main")


def _step(*, bias: bool = True, then: str = "aten::batch_norm", training: str | None = None) -> TraceBuilder:
    """A convolution of 20 us, its bias of 5 us, the norm's count, the next operator; then the bias gradient of 4 us."""
    dims = [IMAGES, WEIGHT, BIAS if bias else []]
    builder = TraceBuilder().step(0, 0, 100).op("aten::conv2d", 0, 10, dims=dims, stack=STACK)
    builder.op("aten::convolution", 0.5, 9.5, dims=dims).launch(1, 2, kernel=(10, 30), name="conv")
    if bias:
        builder.op("aten::add_", 3, 6).launch(4, 5, kernel=(30, 35), name="add")
    builder.op("aten::add_", 11, 13).launch(11.5, 12.5, kernel=(35, 36), name="count")
    values = () if training is None else ("", "", "", "", "", training, "0.1", "1e-05", "True")
    builder.op(then, 14, 19, dims=[[8, 16, 30, 30]], values=values).launch(15, 16, kernel=(36, 50), name="norm")
    builder.op("aten::convolution_backward", 20, 30, dims=[[8, 16, 30, 30], IMAGES, WEIGHT], thread=AUTOGRAD)
    builder.launch(21, 22, kernel=(50, 90), name="dgrad", thread=AUTOGRAD)
    if bias:
        builder.op("aten::sum", 23, 27, thread=AUTOGRAD).launch(24, 25, kernel=(90, 94), thread=AUTOGRAD)
    return builder


def test_the_bias_and_its_gradient_are_found(tmp_path: Path) -> None:
    found = finding(ConvBiasBeforeNorm(), _step(), tmp_path)
    assert found.claims.total_ns == 9_000
    assert evidence(found, "convolutions with a bias") == 1
    assert evidence(found, "kernels for these biases") == 2


def test_the_location_is_in_user_code_and_not_in_torch(tmp_path: Path) -> None:
    (location,) = finding(ConvBiasBeforeNorm(), _step(), tmp_path).locations
    assert (location.file, location.line) == ("net.py", 27)


def test_an_outer_operator_changes_nothing(tmp_path: Path) -> None:
    builder = _step().op("DistributedDataParallel.forward", 0, 19.5)
    assert finding(ConvBiasBeforeNorm(), builder, tmp_path).claims.total_ns == 9_000


def test_a_convolution_without_a_bias_is_clear(tmp_path: Path) -> None:
    assert clear(ConvBiasBeforeNorm(), _step(bias=False), tmp_path).value == 0


def test_a_bias_before_another_operator_is_clear(tmp_path: Path) -> None:
    assert clear(ConvBiasBeforeNorm(), _step(then="aten::relu"), tmp_path).value == 0


NORMS = ("aten::batch_norm", "aten::native_batch_norm")


@pytest.mark.parametrize("norm", NORMS)
def test_a_bias_before_a_norm_in_evaluation_mode_is_clear(norm: str, tmp_path: Path) -> None:
    assert clear(ConvBiasBeforeNorm(), _step(then=norm, training="False"), tmp_path).value == 0


@pytest.mark.parametrize("norm", NORMS)
def test_a_bias_before_a_norm_in_training_mode_is_found(norm: str, tmp_path: Path) -> None:
    assert finding(ConvBiasBeforeNorm(), _step(then=norm, training="True"), tmp_path).claims.total_ns == 9_000


def test_a_gradient_that_may_belong_to_another_convolution_does_not_count(tmp_path: Path) -> None:
    builder = _step().op("aten::convolution", 95, 96, dims=[IMAGES, WEIGHT, BIAS])
    assert finding(ConvBiasBeforeNorm(), builder, tmp_path).claims.total_ns == 5_000


def test_without_shapes_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::convolution", 0, 5).launch(1, 2, kernel=(4, 90))
    assert "record_shapes=True" in skipped(ConvBiasBeforeNorm(), builder, tmp_path)


@pytest.mark.parametrize(("step_us", "found"), [(1801, False), (1800, True)])
def test_biases_count_from_half_a_percent_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    # The bias takes 5 us, its gradient 4 us.
    builder = _step()
    builder.events[0]["dur"] = step_us
    assert is_found(ConvBiasBeforeNorm(), builder, tmp_path) is found


def test_at_most_five_lines_are_shown(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 600)
    for line, at in enumerate(range(0, 600, 100)):
        builder.op("aten::conv2d", at, at + 10, dims=[IMAGES, WEIGHT, BIAS], stack=(f"net.py({line}): forward",))
        builder.op("aten::convolution", at + 1, at + 9, dims=[IMAGES, WEIGHT, BIAS])
        builder.launch(at + 2, at + 3, kernel=(at + 10, at + 30))
        builder.op("aten::add_", at + 4, at + 6).launch(at + 4, at + 5, kernel=(at + 30, at + 35), name="add")
        builder.op("aten::batch_norm", at + 14, at + 19, dims=[[8, 16, 30, 30]])
    found = finding(ConvBiasBeforeNorm(), builder, tmp_path)
    assert [each.line for each in found.locations] == [0, 1, 2, 3, 4]


def test_figures_are_per_step(tmp_path: Path) -> None:
    found = finding(ConvBiasBeforeNorm(), twice(_step(), 100), tmp_path)
    assert evidence(found, "convolutions with a bias") == 1
    assert evidence(found, "kernels for these biases") == 2


def test_convolutions_without_shapes_are_not_judged(tmp_path: Path) -> None:
    def step(convolution_us: int) -> TraceBuilder:
        builder = TraceBuilder().step(0, 0, 100).kernel(0, convolution_us, name="volta_scudnn_128x64_relu_medium_nn_v1")
        return builder.kernel(50, 80, name="cudnn::bn_fw_tr_1C11_kernel_NCHW<float>")

    assert clear(ConvBiasBeforeNorm(), step(30), tmp_path).judged_share == 0.5
    assert "Only 49%" in skipped(ConvBiasBeforeNorm(), step(31), tmp_path)
