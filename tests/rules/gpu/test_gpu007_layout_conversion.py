from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, twice
from traceadvisor.rules.gpu.gpu007_layout_conversion import LayoutConversion

CUDNN = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(cudnn::ops::nchw2nhwc_params_t)"
MIOPEN = "batched_transpose_16x32_half"


def _step(name: str, until: int = 30, end: int = 100) -> TraceBuilder:
    """A conversion from 10 us on, then a convolution of 60 us."""
    builder = TraceBuilder().step(0, 0, end).op("aten::cudnn_convolution", 0, 9)
    return builder.launch(1, 2, kernel=(10, until), name=name).launch(3, 4, kernel=(until, until + 60), name="conv")


@pytest.mark.parametrize("name", [CUDNN, MIOPEN])
def test_conversions_by_cudnn_and_miopen_are_found(name: str, tmp_path: Path) -> None:
    found = finding(LayoutConversion(), _step(name), tmp_path)
    assert found.claims.total_ns == 20_000
    assert evidence(found, "layout conversions") == 1
    assert evidence(found, "share of kernel time") == 0.25


def test_a_few_conversions_are_clear(tmp_path: Path) -> None:
    assert clear(LayoutConversion(), _step(CUDNN, until=12), tmp_path).value == pytest.approx(2 / 62)


def test_conversions_on_an_idle_gpu_are_clear(tmp_path: Path) -> None:
    assert clear(LayoutConversion(), _step(CUDNN, end=10_000), tmp_path).label == "time in layout conversions"


@pytest.mark.parametrize("name", ["max_pool_forward_nchw", "bn_fw_tr_1C11_kernel_NCHW", "implicit_gemm_nhwckrsc_nchw"])
def test_kernels_with_a_layout_in_their_name_are_no_conversions(name: str, tmp_path: Path) -> None:
    assert clear(LayoutConversion(), _step(name), tmp_path).value == 0


@pytest.mark.parametrize(("convolution_us", "found"), [(380.1, False), (380, True)])
def test_conversions_count_from_five_percent_of_kernel_time(
    convolution_us: float, tmp_path: Path, *, found: bool
) -> None:
    builder = (
        TraceBuilder().step(0, 0, 500).op("aten::cudnn_convolution", 0, 9).launch(1, 2, kernel=(10, 30), name=CUDNN)
    )
    builder.launch(3, 4, kernel=(30, 30 + convolution_us), name="conv")
    assert is_found(LayoutConversion(), builder, tmp_path) is found


@pytest.mark.parametrize(("step_us", "found"), [(2001, False), (2000, True)])
def test_conversions_count_from_one_percent_of_the_step(step_us: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(LayoutConversion(), _step(CUDNN, end=step_us), tmp_path) is found


def test_figures_are_per_step(tmp_path: Path) -> None:
    assert evidence(finding(LayoutConversion(), twice(_step(CUDNN), 100), tmp_path), "layout conversions") == 1
