from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, facts_of, finding, is_found, skipped
from tests.rules.products import A100, LEAST_US, multiplying
from traceadvisor.judging.recording import recording_of
from traceadvisor.rules.gpu.gpu010_low_mfu import LowMfu


def test_a_busy_gpu_far_below_its_peak_rate_is_found(tmp_path: Path) -> None:
    found = finding(LowMfu(), multiplying(2900, step_us=3000), tmp_path)
    assert evidence(found, "share of the peak rate, whole step") == pytest.approx(LEAST_US / 3000)
    assert evidence(found, "share of the peak rate, these kernels") == pytest.approx(LEAST_US / 2900)
    assert evidence(found, "achieved rate") == pytest.approx(2 * 4096**3 / 3000e-6)
    assert evidence(found, "operator that loses the most time") == "aten::mm"


def test_the_time_that_similar_calls_take_cannot_be_saved(tmp_path: Path) -> None:
    saving = finding(LowMfu(), multiplying(2900, step_us=3000), tmp_path).saving
    assert saving.high_ns == pytest.approx((2900 - LEAST_US / 0.8) * 1000, rel=0.001)


def test_a_good_rate_is_clear(tmp_path: Path) -> None:
    assert clear(LowMfu(), multiplying(900, step_us=1000), tmp_path).value == pytest.approx(LEAST_US / 1000)


def test_the_rate_is_compared_with_the_peak_of_the_data_type_in_use(tmp_path: Path) -> None:
    """In float32, the same matmul takes 16 times as long: 7 of 9 ms are a good rate."""
    builder = multiplying(8900, step_us=9000, kind="float", kernel="ampere_sgemm_128x64_tn")
    assert clear(LowMfu(), builder, tmp_path).value == pytest.approx(16 * LEAST_US / 9000)


def test_a_gpu_that_waits_is_skipped(tmp_path: Path) -> None:
    assert "Kernels take 10% of the step" in skipped(LowMfu(), multiplying(900, step_us=9000), tmp_path)


def test_a_memory_bound_step_is_clear(tmp_path: Path) -> None:
    builder = multiplying(900, plain_us=2000, step_us=3000)
    assert clear(LowMfu(), builder, tmp_path).label == "memory-bound share of kernel time"


def test_memory_bound_matmuls_are_clear(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 100)
    shapes = [[1, 4096], [4096, 4096]]
    builder.op("aten::mm", 0, 10, types=("c10::Half",) * 2, dims=shapes).launch(2, 5, kernel=(10, 100))
    assert clear(LowMfu(), builder, tmp_path).label == "memory-bound share of kernel time"


@pytest.mark.parametrize("plain", ["mylib::fused", "aten::thnn_conv2d"])
def test_operators_with_unknown_flops_are_skipped(plain: str, tmp_path: Path) -> None:
    assert "unknown FLOPs" in skipped(LowMfu(), multiplying(2000, plain_us=900, plain=plain, step_us=3000), tmp_path)


def test_float32_that_may_be_tf32_is_skipped(tmp_path: Path) -> None:
    assert "data type" in skipped(LowMfu(), multiplying(2900, step_us=3000, kind="float"), tmp_path)


def test_an_unknown_gpu_is_skipped(tmp_path: Path) -> None:
    assert "peak rates" in skipped(LowMfu(), multiplying(2900, step_us=3000, device={}), tmp_path)


def test_the_report_contains_the_rate(tmp_path: Path) -> None:
    figures = recording_of(facts_of(multiplying(900, step_us=1000), tmp_path)).figures
    assert figures.flops_per_s == pytest.approx(2 * 4096**3 / 1000e-6)
    assert figures.peak_rate_share == pytest.approx(LEAST_US / 1000)


def test_the_report_contains_no_incomplete_rate(tmp_path: Path) -> None:
    builder = multiplying(2000, plain_us=900, plain="mylib::fused", step_us=3000)
    figures = recording_of(facts_of(builder, tmp_path)).figures
    assert (figures.flops_per_s, figures.peak_rate_share) == (None, None)


@pytest.mark.parametrize(("step_us", "found"), [(2202, False), (2203, True)])
def test_a_rate_is_low_below_a_fifth_of_the_peak(step_us: int, tmp_path: Path, *, found: bool) -> None:
    # Five times the minimum time of 440.5 us.
    assert is_found(LowMfu(), multiplying(2100, step_us=step_us), tmp_path) is found


def test_a_gpu_is_busy_from_80_percent_of_the_step_on(tmp_path: Path) -> None:
    assert is_found(LowMfu(), multiplying(2400, step_us=3000), tmp_path)
    assert "Kernels take 80% of the step" in skipped(LowMfu(), multiplying(2399, step_us=3000), tmp_path)


@pytest.mark.parametrize(("plain_us", "found"), [(1501, False), (1500, True)])
def test_arithmetic_is_the_limit_up_to_half_of_kernel_time_in_memory(
    plain_us: int, tmp_path: Path, *, found: bool
) -> None:
    assert is_found(LowMfu(), multiplying(1500, plain_us=plain_us, step_us=3100), tmp_path) is found
