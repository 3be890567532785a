from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.gpu.gpu015_double_precision import DoublePrecision


def _step(kind: str, length_us: int = 60) -> TraceBuilder:
    """A step of 100 us without a GPU, with a convolution that holds another operator."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::relu", 70, 100, types=["double"])
    builder.op("aten::convolution", 0, length_us, types=[kind, kind, ""])
    return builder.op("aten::_convolution", 1, length_us - 1, types=[kind, kind, ""])


def test_convolutions_in_float64_are_found_once(tmp_path: Path) -> None:
    found = finding(DoublePrecision(), _step("double"), tmp_path)
    assert evidence(found, "float64 matrix operations") == 1
    assert found.claims.total_ns == 60_000
    assert 60_000 <= found.saving.high_ns < 100_000  # recording may have made the rest longer


def test_float32_is_clear(tmp_path: Path) -> None:
    assert clear(DoublePrecision(), _step("float"), tmp_path).value == 0


@pytest.mark.parametrize(("length_us", "found"), [(9, False), (10, True)])
def test_float64_counts_from_a_tenth_of_the_step(length_us: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(DoublePrecision(), _step("double", length_us), tmp_path) is found


@pytest.mark.parametrize(("rows", "found"), [(32, False), (512, True)])
def test_an_operator_whose_call_takes_most_of_its_time_does_not_count(
    rows: int, tmp_path: Path, *, found: bool
) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    builder.op("aten::mm", 0, 60, types=["double", "double"], dims=[[rows, 64], [64, 64]])
    assert is_found(DoublePrecision(), builder, tmp_path) is found


def test_on_a_gpu_the_kernels_count(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 20, types=["double", "double"])
    builder.launch(5, 6, kernel=(10, 50)).op("aten::mul", 20, 30).launch(21, 22, kernel=(50, 100))
    assert finding(DoublePrecision(), builder, tmp_path).claims.total_ns == 40_000


@pytest.mark.parametrize(
    ("device", "share"), [("NVIDIA A100-SXM4-40GB", 0.5), ("Tesla P100-SXM2-16GB", 0.5), ("NVIDIA L4", 1)]
)
def test_the_saving_is_limited_by_bytes_and_rates_that_are_known(device: str, share: float, tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, name=device).step(0, 0, 100)
    builder.op("aten::mm", 0, 20, types=["double", "double"]).launch(5, 6, kernel=(10, 50))
    builder.op("aten::mul", 20, 30).launch(21, 22, kernel=(50, 100))
    assert finding(DoublePrecision(), builder, tmp_path).saving.high_ns == pytest.approx(40_000 * share)


@pytest.mark.parametrize(
    "name", ["linalg_cholesky_ex", "cholesky_solve", "_linalg_svd", "linalg_solve_ex", "_linalg_eigh"]
)
def test_steps_that_decompose_matrices_are_not_judged(name: str, tmp_path: Path) -> None:
    builder = _step("double").op(f"aten::{name}", 61, 65)
    assert "decompose matrices" in skipped(DoublePrecision(), builder, tmp_path)


def test_a_norm_decomposes_nothing(tmp_path: Path) -> None:
    builder = _step("double").op("aten::linalg_vector_norm", 61, 65)
    assert is_found(DoublePrecision(), builder, tmp_path)
