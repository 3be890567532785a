from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from traceadvisor.rules.gpu.gpu003_misaligned_shapes import MisalignedShapes

A100 = {"name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0}


def _product(*shapes: list[int], kind: str = "c10::BFloat16", end: int = 60) -> TraceBuilder:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 100)
    builder.op("aten::mm", 0, 10, types=(kind, kind), dims=shapes).launch(2, 5, kernel=(10, end))
    return builder.op("aten::relu", 10, 15).launch(11, 13, kernel=(60, 100))


def test_a_vocabulary_size_that_is_not_a_multiple_of_8_is_found(tmp_path: Path) -> None:
    found = finding(MisalignedShapes(), _product([512, 64], [64, 50_257]), tmp_path)
    assert found.claims.total_ns == 50_000
    assert evidence(found, "misaligned size") == 50_257
    assert found.fix.change == "50257 -> 50264"


@pytest.mark.parametrize(
    "shapes", [([512, 64], [64, 50_304]), ([512, 768], [768, 8])], ids=["multiples of 64", "multiples of 8"]
)
def test_aligned_sizes_are_clear(shapes: tuple[list[int], list[int]], tmp_path: Path) -> None:
    assert clear(MisalignedShapes(), _product(*shapes), tmp_path).value == 0


def test_a_matrix_times_a_vector_is_clear(tmp_path: Path) -> None:
    assert clear(MisalignedShapes(), _product([1, 1023], [1023, 50_257]), tmp_path).value == 0


def test_float32_matmuls_are_clear(tmp_path: Path) -> None:
    builder = _product([512, 64], [64, 50_257], kind="float")
    assert clear(MisalignedShapes(), builder, tmp_path).remark == "no matmul ran in 16 bits"


def test_an_odd_number_of_classes_in_a_small_last_layer_is_clear(tmp_path: Path) -> None:
    assert clear(MisalignedShapes(), _product([512, 64], [64, 101], end=12), tmp_path).value == pytest.approx(0.02)


def test_the_saving_is_at_most_half_of_the_time(tmp_path: Path) -> None:
    builder = _product([16, 64], [64, 101])
    assert finding(MisalignedShapes(), builder, tmp_path).saving.high_ns == pytest.approx(25_000)


def test_the_saving_is_limited_by_the_gpu(tmp_path: Path) -> None:
    """2,001 x 1,000 x 1,000 takes 12.8 µs on an A100 at the peak rate, and 16 µs at best: 4 of 20 µs are saved."""
    builder = _product([2001, 1000], [1000, 1000], end=30)
    saving = finding(MisalignedShapes(), builder, tmp_path).saving
    assert saving.high_ns == pytest.approx(20_000 - 2 * 2001e6 / 312e3 / 0.8, rel=0.01)


def test_without_shapes_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "record_shapes=True" in skipped(MisalignedShapes(), _product(), tmp_path)


@pytest.mark.parametrize(("kernel_us", "found"), [(29.9, False), (30, True)])
def test_misaligned_sizes_count_from_three_percent_of_the_step(
    kernel_us: float, tmp_path: Path, *, found: bool
) -> None:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 1000)
    builder.op("aten::mm", 0, 10, types=("c10::Half",) * 2, dims=[[512, 64], [64, 50_257]])
    builder.launch(2, 5, kernel=(10, 10 + kernel_us))
    assert is_found(MisalignedShapes(), builder, tmp_path) is found
