from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Clear
from traceadvisor.model.saving import of_the_fix
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
    found = finding(NoMixedPrecision(), _matmul(("float", "float"), V100).op("AddmmBackward0", 16, 17), tmp_path)
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


@pytest.mark.parametrize(("kernel_us", "found"), [(57.1, False), (57.2, True)])
def test_float32_counts_if_16_bits_could_save_five_percent_of_the_step(
    kernel_us: float, tmp_path: Path, *, found: bool
) -> None:
    # A V100 is 125 / 15.7 times as fast in 16 bits, so 50 of 57.19 us can be saved.
    builder = TraceBuilder().device(0, **V100).step(0, 0, 1000).op("aten::mm", 0, 10, types=("float", "float"))
    builder.launch(2, 5, kernel=(10, 10 + kernel_us))
    assert is_found(NoMixedPrecision(), builder, tmp_path) is found


def test_little_float32_is_clear_and_has_the_saving_or_a_reason_without_one(tmp_path: Path) -> None:
    def little(*shapes: list[int]) -> Clear:
        builder = TraceBuilder().device(0, **V100).step(0, 0, 1000)
        builder.op("aten::mm", 0, 10, types=("float", "float"), dims=shapes).launch(2, 5, kernel=(10, 50))
        return clear(NoMixedPrecision(), builder, tmp_path)

    known, unknown = little([64, 64], [64, 64]), little()
    reason = "input shapes were not recorded, so the speed-up of each call is unknown"
    assert known.doubt != of_the_fix(reason)
    assert (unknown.saving_share, unknown.doubt) == (None, of_the_fix(reason))


@pytest.mark.parametrize(("kernel_us", "found"), [(9, False), (10, True)])
def test_kernels_shorter_than_a_launch_do_not_count(kernel_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().device(0, **V100).step(0, 0, 100)
    for at in range(0, 100, 20):
        builder.op("aten::mm", at, at + 6, types=("float", "float"))
        builder.launch(at, at + 5, kernel=(at + 6, at + 6 + kernel_us))
    assert is_found(NoMixedPrecision(), builder, tmp_path) is found


def _named(*kernels: tuple[str, int], device: dict[str, object] | None = None) -> TraceBuilder:
    """A step of 100 us with kernels that no operator launched, and their durations."""
    builder, at = TraceBuilder().device(0, **(device or V100)).step(0, 0, 100), 0
    for name, duration_us in kernels:
        builder.kernel(at, at + duration_us, name=name)
        at += duration_us
    return builder


SGEMM, HGEMM = "volta_sgemm_128x64_nn", "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn"
TF32 = "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"


def test_kernel_names_tell_where_no_operator_does(tmp_path: Path) -> None:
    found = finding(NoMixedPrecision(), _named((SGEMM, 28), (ADD, 70)), tmp_path)
    assert found.claims.total_ns == 28_000
    assert found.saving.high_ns == pytest.approx(28_000 * (1 - 15.7 / 125))


def test_a_narrower_type_in_the_kernel_name_outweighs_the_operator(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, **V100).step(0, 0, 100).op("aten::mm", 0, 10, types=("float", "float"))
    assert clear(NoMixedPrecision(), builder.launch(2, 5, kernel=(10, 90), name=HGEMM), tmp_path).value == 0


def test_a_kernel_name_of_float32_does_not_widen_a_16_bit_operator(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, **V100).step(0, 0, 100).op("aten::mm", 0, 10, types=("c10::Half",) * 2)
    assert clear(NoMixedPrecision(), builder.launch(2, 5, kernel=(10, 90), name=SGEMM), tmp_path).value == 0


def test_a_clear_check_says_how_much_kernel_time_it_judged(tmp_path: Path) -> None:
    found = clear(NoMixedPrecision(), _named((HGEMM, 40), (ADD, 20), ("mine", 40)), tmp_path)
    assert found.judged_share == pytest.approx(0.6)


@pytest.mark.parametrize(("judged_us", "is_judged"), [(39, False), (40, True)])
def test_under_half_of_kernel_time_judged_the_rule_is_skipped(
    judged_us: int, tmp_path: Path, *, is_judged: bool
) -> None:
    builder = _named((ADD, judged_us), ("gemm", 40))
    if is_judged:
        assert clear(NoMixedPrecision(), builder, tmp_path).judged_share == 0.5
    else:
        assert "Only 49% of kernel time could be judged" in skipped(NoMixedPrecision(), builder, tmp_path)


def test_float32_is_found_however_little_was_judged(tmp_path: Path) -> None:
    assert finding(NoMixedPrecision(), _named((SGEMM, 10), ("mine", 90)), tmp_path).claims.total_ns == 10_000


@pytest.mark.parametrize(("kernel_us", "found"), [(9, False), (10, True)])
def test_of_operations_in_tf32_half_can_be_saved(kernel_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = _named((TF32, kernel_us), (ADD, 50), device=A100)
    assert is_found(NoMixedPrecision(), builder, tmp_path) is found


def test_tf32_saves_at_most_half_without_shapes(tmp_path: Path) -> None:
    builder = _named((TF32, 50), (ADD, 50), device=A100)
    assert finding(NoMixedPrecision(), builder, tmp_path).saving.high_ns == pytest.approx(25_000)


@pytest.mark.parametrize(
    ("version", "scaler"),
    [
        ("2.2.1+cu121", "torch.cuda.amp.GradScaler()"),
        ("2.3.0", 'torch.amp.GradScaler("cuda")'),
        (None, 'torch.amp.GradScaler("cuda")'),
    ],
)
def test_the_loss_scaler_is_one_that_the_recorded_torch_has(version: str | None, scaler: str, tmp_path: Path) -> None:
    builder = _named((SGEMM, 50), (ADD, 50)).op("AddmmBackward0", 0, 1)
    captured = Captured(builder, tmp_path).with_settings(torch_version=version)
    change = captured.finding(NoMixedPrecision()).fix.change
    assert change is not None
    assert change.startswith(f"scaler = {scaler}")
    assert [line.split("(")[0] for line in change.splitlines() if line.startswith("scaler.")] == [
        "scaler.scale",
        "scaler.unscale_",
        "scaler.step",
        "scaler.update",
    ]


@pytest.mark.parametrize(
    ("name", "capability", "change"),
    [("Tesla V100-SXM2-32GB", (7, 0), "float16"), ("Tesla T4", (7, 5), "float16"), ("NVIDIA A10G", (8, 6), "bfloat16")],
)
def test_bfloat16_is_not_proposed_where_it_is_emulated(
    name: str, capability: tuple[int, int], change: str, tmp_path: Path
) -> None:
    device: dict[str, object] = {"name": name, "computeMajor": capability[0], "computeMinor": capability[1]}
    found = finding(NoMixedPrecision(), _matmul(("float", "float"), device), tmp_path)
    assert f"torch.{change}" in (found.fix.change or "")


def test_a_gpu_without_known_rates_gets_no_saving(tmp_path: Path) -> None:
    device: dict[str, object] = {"name": "NVIDIA GeForce RTX 4070", "computeMajor": 8, "computeMinor": 9}
    reason = skipped(NoMixedPrecision(), _matmul(("float", "float"), device), tmp_path)
    assert reason.startswith("The peak rates of this GPU are not known")
