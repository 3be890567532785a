from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Clear
from traceadvisor.rules.gpu.gpu001_no_mixed_precision import NoMixedPrecision

V100 = {"name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0}
A100 = {"name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0}
GTX_1660 = {"name": "NVIDIA GeForce GTX 1660 Ti", "computeMajor": 7, "computeMinor": 5}
MI300X = {"name": "AMD Instinct MI300X", "warpSize": 64}
P100 = {"name": "Tesla P100-PCIE-16GB", "computeMajor": 6, "computeMinor": 0}


def _matmul(types: tuple[str, ...], device: dict[str, object], name: str = "aten::mm") -> TraceBuilder:
    builder = TraceBuilder().device(0, **device).step(0, 0, 100).op(name, 0, 10, types=types)
    return builder.launch(2, 5, kernel=(10, 60)).op("aten::relu", 10, 15, types=types).launch(11, 13, kernel=(60, 100))


def test_only_the_kernel_time_of_float32_matrix_operations_is_claimed(tmp_path: Path) -> None:
    found = finding(NoMixedPrecision(), _matmul(("float", "float"), V100), tmp_path)
    assert found.claims.total_ns == 50_000
    assert evidence(found, "share of kernel time") == pytest.approx(50 / 90)


def test_without_shapes_the_saving_is_at_most_the_ratio_of_peak_rates(tmp_path: Path) -> None:
    saving = finding(NoMixedPrecision(), _matmul(("float", "float"), V100), tmp_path).saving
    assert saving.high_ns == pytest.approx(50_000 * (1 - 15.7 / 125))


@pytest.mark.parametrize("kind", ["c10::Half", "c10::BFloat16"])
def test_matmuls_in_16_bits_are_clear(kind: str, tmp_path: Path) -> None:
    assert clear(NoMixedPrecision(), _matmul((kind, kind), V100), tmp_path).value == 0


def test_a_convolution_called_in_float32_but_cast_by_autocast_is_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, **V100).step(0, 0, 100).op("aten::conv2d", 0, 20, types=("float", "float"))
    builder.op("aten::cudnn_convolution", 5, 15, types=("c10::Half", "c10::Half")).launch(6, 9, kernel=(10, 90))
    assert clear(NoMixedPrecision(), builder, tmp_path).value == 0


def test_bfloat16_is_proposed_if_the_gpu_supports_it(tmp_path: Path) -> None:
    found = finding(NoMixedPrecision(), _matmul(("float", "float"), A100), tmp_path)
    assert found.fix.change is not None
    assert "bfloat16" in found.fix.change
    assert any("TF32" in caveat for caveat in found.caveats)


def test_float16_with_loss_scaling_is_proposed_otherwise(tmp_path: Path) -> None:
    found = finding(NoMixedPrecision(), _matmul(("float", "float"), V100), tmp_path)
    assert found.fix.change is not None
    assert "scaler" in found.fix.change
    assert not any("TF32" in caveat for caveat in found.caveats)


@pytest.mark.parametrize("device", [P100, GTX_1660])
def test_a_gpu_without_tensor_cores_is_clear(device: dict[str, object], tmp_path: Path) -> None:
    assert clear(NoMixedPrecision(), _matmul(("float", "float"), device), tmp_path).remark == (
        "the GPU has no tensor cores"
    )


def test_without_input_types_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "record_shapes=True" in skipped(NoMixedPrecision(), _matmul((), V100), tmp_path)


def test_an_unknown_gpu_is_skipped(tmp_path: Path) -> None:
    assert "The GPU's capabilities are unknown" in skipped(NoMixedPrecision(), _matmul(("float",), {}), tmp_path)


def test_with_shapes_the_saving_is_limited_by_the_gpu(tmp_path: Path) -> None:
    """A matmul of 1,024 x 1,024 matrices takes 17.2 µs in float16 on a V100 at the peak rate, and 25% more at best."""
    builder = TraceBuilder().device(0, **V100).step(0, 0, 300)
    shapes = [[1024, 1024], [1024, 1024]]
    builder.op("aten::mm", 0, 10, types=("float", "float"), dims=shapes).launch(2, 5, kernel=(10, 160))
    found = finding(NoMixedPrecision(), builder, tmp_path)
    least_ns = 2 * 1024**3 / 125e3
    assert found.saving.high_ns == pytest.approx(150e3 - least_ns / 0.8, rel=0.01)
    assert evidence(found, "estimated 16-bit speed-up") == pytest.approx(150e3 * 0.6 / least_ns)
    assert found.fix.what_if is not None


def test_memory_bound_matmuls_get_at_most_twice_as_fast(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, **V100).step(0, 0, 300)
    shapes = [[1, 4096], [4096, 4096]]
    builder.op("aten::mm", 0, 10, types=("float", "float"), dims=shapes).launch(2, 5, kernel=(10, 90))
    assert finding(NoMixedPrecision(), builder, tmp_path).saving.high_ns <= 40_000


def test_gpus_by_amd_are_known(tmp_path: Path) -> None:
    found = finding(NoMixedPrecision(), _matmul(("float", "float"), MI300X), tmp_path)
    assert found.fix.change is not None
    assert "bfloat16" in found.fix.change
    assert evidence(found, "ratio of peak rates") == pytest.approx(8.0, rel=0.01)


def test_gpus_by_amd_do_not_use_tf32(tmp_path: Path) -> None:
    captured = Captured(_matmul(("float", "float"), MI300X), tmp_path).with_settings(matmul_tf32=True, cudnn_tf32=True)
    assert not any("TF32" in caveat for caveat in captured.finding(NoMixedPrecision()).caveats)


def test_matmuls_that_use_tf32_already_save_less(tmp_path: Path) -> None:
    def saving(kernel: str) -> float:
        shapes = [[1024, 1024], [1024, 1024]]
        builder = TraceBuilder().device(0, **A100).step(0, 0, 900)
        builder.op("aten::mm", 0, 10, types=("float", "float"), dims=shapes).launch(2, 5, kernel=(10, 810), name=kernel)
        return finding(NoMixedPrecision(), builder, tmp_path).saving.high_ns

    assert saving("ampere_sgemm_128x64_tn") == pytest.approx(800e3 * (1 - 1 / 16), rel=0.01)
    assert saving("sm80_xmma_gemm_f32f32_tf32f32_f32") == pytest.approx(800e3 * (1 - 1 / 2), rel=0.01)


@pytest.mark.parametrize(("kernel_us", "found"), [(49.9, False), (50, True)])
def test_float32_counts_from_five_percent_of_the_step(kernel_us: float, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().device(0, **V100).step(0, 0, 1000).op("aten::mm", 0, 10, types=("float", "float"))
    builder.launch(2, 5, kernel=(10, 10 + kernel_us))
    assert is_found(NoMixedPrecision(), builder, tmp_path) is found


def test_little_float32_is_clear_and_has_the_saving_or_a_reason_without_one(tmp_path: Path) -> None:
    def little(*shapes: list[int]) -> Clear:
        builder = TraceBuilder().device(0, **V100).step(0, 0, 1000)
        builder.op("aten::mm", 0, 10, types=("float", "float"), dims=shapes).launch(2, 5, kernel=(10, 50))
        return clear(NoMixedPrecision(), builder, tmp_path)

    known, unknown = little([64, 64], [64, 64]), little()
    reason = "input shapes and peak rates give no speed-up for these calls"
    assert known.not_replayed != reason
    assert (unknown.saving_share, unknown.not_replayed) == (None, reason)


@pytest.mark.parametrize(("kernel_us", "found"), [(9, False), (10, True)])
def test_kernels_shorter_than_a_launch_do_not_count(kernel_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().device(0, **V100).step(0, 0, 100)
    for at in range(0, 100, 20):
        builder.op("aten::mm", at, at + 6, types=("float", "float"))
        builder.launch(at, at + 5, kernel=(at + 6, at + 6 + kernel_us))
    assert is_found(NoMixedPrecision(), builder, tmp_path) is found
