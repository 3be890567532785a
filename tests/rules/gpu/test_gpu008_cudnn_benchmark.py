from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.gpu.gpu008_cudnn_benchmark import CudnnBenchmark

V100 = {"name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0}
LEAST_US = 4 * (2 * 32 * 64 * 56 * 56 + 64 * 64) / 900e3
"""57 µs: the memory traffic of a float32 1 x 1 convolution of 32 images of 64 channels and 56 x 56 points. Its
arithmetic takes 52 µs."""


def _steps(*batches: int, takes: float = 100) -> TraceBuilder:
    """Steps of 200 µs, each with one convolution of the given batch size."""
    builder = TraceBuilder().device(0, **V100)
    for number, batch in enumerate(batches):
        at = 200 * number
        builder.step(number, at, at + 200)
        values = ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
        shapes = [[batch, 64, 56, 56], [64, 64, 1, 1]]
        builder.op("aten::convolution", at, at + 10, types=("float", "float"), dims=shapes, values=values)
        builder.launch(at + 2, at + 5, kernel=(at + 20, at + 20 + takes))
    return builder


def test_slow_convolutions_of_constant_shape_are_found(tmp_path: Path) -> None:
    captured = Captured(_steps(32, 32), tmp_path).with_settings(cudnn_benchmark=False)
    found = captured.finding(CudnnBenchmark())
    assert found.claims.total_ns == 200_000
    assert evidence(found, "convolution time beyond") == pytest.approx((100 - LEAST_US / 0.8) * 1e3)
    assert found.saving.high_ns == pytest.approx((100 - LEAST_US / 0.8) * 1e3)


def test_the_saving_is_at_most_half_of_the_time(tmp_path: Path) -> None:
    captured = Captured(_steps(4, 4), tmp_path).with_settings(cudnn_benchmark=False)
    assert captured.finding(CudnnBenchmark()).saving.high_ns == pytest.approx(50_000)


def test_convolutions_at_a_good_rate_are_clear(tmp_path: Path) -> None:
    assert clear(CudnnBenchmark(), _steps(32, 32, takes=72), tmp_path).value < 0.02


def test_autotuned_convolutions_are_clear(tmp_path: Path) -> None:
    captured = Captured(_steps(32, 32), tmp_path).with_settings(cudnn_benchmark=True)
    assert captured.clear(CudnnBenchmark()).remark == "autotuning is on"


def test_shapes_that_change_are_clear(tmp_path: Path) -> None:
    captured = Captured(_steps(32, 31), tmp_path).with_settings(cudnn_benchmark=False)
    assert captured.clear(CudnnBenchmark()).remark == "convolution shapes change between steps"


def test_a_single_step_is_skipped(tmp_path: Path) -> None:
    outcome = Captured(_steps(32), tmp_path).with_settings(cudnn_benchmark=False).outcome(CudnnBenchmark())
    assert isinstance(outcome, Skipped)
    assert "A single step" in outcome.reason


def test_without_settings_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(CudnnBenchmark(), _steps(32, 32), tmp_path)


@pytest.mark.parametrize(("gap_us", "found"), [(2301, False), (2300, True)])
def test_convolutions_count_from_two_percent_of_the_step(gap_us: int, tmp_path: Path, *, found: bool) -> None:
    # Half of each kernel of 100 us can be saved: 2 x 50 us of 200 + 200 + gap.
    builder = _steps(4, 4)
    next(event for event in builder.events if event["name"] == "ProfilerStep#1")["dur"] = 200 + 2 * gap_us
    builder.op("aten::add", 399 + 2 * gap_us, 400 + 2 * gap_us)  # so the step does not end with the recording
    captured = Captured(builder, tmp_path).with_settings(cudnn_benchmark=False)
    assert captured.is_found(CudnnBenchmark()) is found


def _named(convolution_us: int) -> TraceBuilder:
    """A step of 1 ms with a convolution that no operator launched."""
    builder = TraceBuilder().device(0, **V100).step(0, 0, 1000)
    builder.kernel(0, convolution_us, name="volta_scudnn_128x64_relu_medium_nn_v1")
    return builder.kernel(500, 500 + convolution_us, name="cudnn::bn_fw_tr_1C11_kernel_NCHW<float>")


def test_few_convolutions_by_name_are_clear_without_shapes(tmp_path: Path) -> None:
    found = clear(CudnnBenchmark(), _named(39), tmp_path)
    assert found.value == pytest.approx(0.0195)
    assert found.judged_share == 1


def test_many_convolutions_by_name_need_shapes(tmp_path: Path) -> None:
    assert "No launch calls were recorded" in skipped(CudnnBenchmark(), _named(40), tmp_path)
