from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.gpu.gpu002_tf32_off import Tf32Off

A100 = {"name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0}
V100 = {"name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0}


def _product(
    kernel: str, kind: str = "float", name: str = "aten::mm", device: dict[str, object] = A100
) -> TraceBuilder:
    builder = TraceBuilder().device(0, **device).step(0, 0, 100).op(name, 0, 10, types=(kind, kind))
    return builder.launch(2, 5, kernel=(10, 60), name=kernel).op("aten::relu", 10, 15).launch(11, 13, kernel=(60, 100))


def test_float32_matmuls_without_tf32_are_found(tmp_path: Path) -> None:
    found = finding(Tf32Off(), _product("ampere_sgemm_128x64_tn"), tmp_path)
    assert found.claims.total_ns == 50_000
    assert found.fix.change == 'torch.set_float32_matmul_precision("high")'
    assert evidence(found, "share in matmuls") == 1


def test_convolutions_have_their_own_setting(tmp_path: Path) -> None:
    found = finding(Tf32Off(), _product("ampere_scudnn_128x64_relu", name="aten::convolution"), tmp_path)
    assert found.fix.change == "torch.backends.cudnn.allow_tf32 = True"


@pytest.mark.parametrize("kernel", ["cutlass_80_tensorop_s1688gemm_128x128", "sm80_xmma_gemm_f32f32_tf32f32_f32"])
def test_matmuls_in_tf32_are_clear(kernel: str, tmp_path: Path) -> None:
    assert clear(Tf32Off(), _product(kernel), tmp_path).value == 0


def test_matmuls_in_16_bits_are_clear(tmp_path: Path) -> None:
    assert clear(Tf32Off(), _product("gemm", "c10::Half"), tmp_path).value == 0


def test_kernels_tell_the_architecture_of_a_gpu_that_is_not_described(tmp_path: Path) -> None:
    assert "does not support TF32" in skipped(Tf32Off(), _product("volta_sgemm_128x64_nn", device={}), tmp_path)
    assert "peak rates" in skipped(Tf32Off(), _product("ampere_sgemm_128x64_tn", device={}), tmp_path)


def test_a_gpu_without_tf32_is_skipped(tmp_path: Path) -> None:
    assert skipped(Tf32Off(), _product("volta_sgemm", device=V100), tmp_path) == "The GPU does not support TF32."


@pytest.mark.parametrize(
    ("name", "capability", "reason"),
    [
        ("NVIDIA GeForce RTX 4090", 9, "This GPU multiplies no faster in TF32 than in float32."),
        ("NVIDIA GeForce RTX 4070", 9, "The peak rates of this GPU are not known"),
        ("NVIDIA GeForce RTX 3060", 6, "The peak rates of this GPU are not known"),
    ],
)
def test_a_gpu_that_gains_nothing_or_an_unknown_ratio_is_skipped(
    name: str, capability: int, reason: str, tmp_path: Path
) -> None:
    device: dict[str, object] = {"name": name, "computeMajor": 8, "computeMinor": capability}
    assert skipped(Tf32Off(), _product("ampere_sgemm_128x64_tn", device=device), tmp_path).startswith(reason)


@pytest.mark.parametrize(("name", "minor", "ratio"), [("NVIDIA A100-SXM4-40GB", 0, 8), ("NVIDIA A10", 6, 2)])
def test_the_saving_is_limited_by_the_ratio_of_the_gpus_own_rates(
    name: str, minor: int, ratio: float, tmp_path: Path
) -> None:
    device: dict[str, object] = {"name": name, "computeMajor": 8, "computeMinor": minor}
    found = finding(Tf32Off(), _product("ampere_sgemm_128x64_tn", device=device), tmp_path)
    assert evidence(found, "ratio of peak rates") == pytest.approx(ratio, rel=0.01)
    assert found.saving.high_ns == pytest.approx(50_000 * (1 - 1 / ratio), rel=0.01)


def test_if_neither_kernel_names_nor_settings_show_tf32_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(Tf32Off(), _product("gemm"), tmp_path)


def test_the_settings_of_a_capture_show_tf32(tmp_path: Path) -> None:
    captured = Captured(_product("gemm"), tmp_path)
    assert isinstance(captured.outcome(Tf32Off()), Skipped)
    assert captured.with_settings(matmul_tf32=False).finding(Tf32Off()).claims.total_ns == 50_000
    assert captured.with_settings(matmul_tf32=True).clear(Tf32Off()).value == 0


def test_with_shapes_the_saving_is_limited_by_the_tensor_cores(tmp_path: Path) -> None:
    """A matmul of 1,024 x 1,024 matrices takes 13.8 µs in TF32 at the peak rate, and 25% more at best."""
    builder = TraceBuilder().device(0, **A100).step(0, 0, 300)
    shapes = [[1024, 1024], [1024, 1024]]
    builder.op("aten::mm", 0, 10, types=("float", "float"), dims=shapes).launch(2, 5, kernel=(10, 130), name="sgemm")
    saving = finding(Tf32Off(), builder, tmp_path).saving
    assert saving.high_ns == pytest.approx(120e3 - 2 * 1024**3 / 156e3 / 0.8, rel=0.01)


def _short_product(kernel_us: float, kernel: str) -> TraceBuilder:
    """A step of 1 ms, with as long a kernel that multiplies nothing."""
    builder = TraceBuilder().device(0, **A100).step(0, 0, 1000).op("aten::mm", 0, 10, types=("float", "float"))
    builder.launch(2, 5, kernel=(10, 10 + kernel_us), name=kernel)
    return builder.op("aten::relu", 10, 15).launch(11, 13, kernel=(500, 500 + kernel_us), name="relu")


@pytest.mark.parametrize(("kernel_us", "found"), [(49.9, False), (50, True)])
def test_float32_counts_from_five_percent_of_the_step(kernel_us: float, tmp_path: Path, *, found: bool) -> None:
    assert is_found(Tf32Off(), _short_product(kernel_us, "ampere_sgemm_128x64_tn"), tmp_path) is found


def test_float32_that_may_be_tf32_counts_from_five_percent_of_the_step(tmp_path: Path) -> None:
    assert "Neither kernel names nor settings" in skipped(Tf32Off(), _short_product(50, "gemm"), tmp_path)
    assert clear(Tf32Off(), _short_product(49.9, "gemm"), tmp_path).value == 0


def test_matmuls_and_convolutions_have_separate_shares(tmp_path: Path) -> None:
    builder = _product("ampere_sgemm_128x64_tn").step(1, 100, 200)
    builder.op("aten::convolution", 100, 110, types=("float", "float"))
    builder.launch(102, 105, kernel=(110, 135), name="ampere_scudnn_128x64_relu")
    found = finding(Tf32Off(), builder, tmp_path)
    assert evidence(found, "share in matmuls") == pytest.approx(50 / 75)
    assert found.fix.change is not None
    assert found.fix.change.splitlines() == [
        'torch.set_float32_matmul_precision("high")',
        "torch.backends.cudnn.allow_tf32 = True",
    ]


@pytest.mark.parametrize(
    ("version", "change"),
    [
        ("2.8.0+cu128", 'torch.set_float32_matmul_precision("high")'),
        ("2.9.0+cu128", 'torch.backends.cuda.matmul.fp32_precision = "tf32"'),
    ],
)
def test_the_setting_is_one_that_the_recorded_torch_has(version: str, change: str, tmp_path: Path) -> None:
    captured = Captured(_product("ampere_sgemm_128x64_tn"), tmp_path).with_settings(torch_version=version)
    assert captured.finding(Tf32Off()).fix.change == change


def test_kernel_names_tell_where_no_types_were_recorded(tmp_path: Path) -> None:
    def step(kernel: str) -> TraceBuilder:
        builder = TraceBuilder().device(0, **A100).step(0, 0, 100).op("aten::mm", 0, 10)
        return builder.launch(2, 5, kernel=(10, 60), name=kernel)

    found = finding(Tf32Off(), step("ampere_sgemm_128x64_tn"), tmp_path)
    assert found.claims.total_ns == 50_000
    assert found.saving.high_ns == pytest.approx(50_000 * (1 - 19.5 / 156))
    assert clear(Tf32Off(), step("sm80_xmma_gemm_f32f32_tf32f32_f32_tn"), tmp_path).judged_share == 1
    assert "Only 0% of kernel time" in skipped(Tf32Off(), step("gemm"), tmp_path)
