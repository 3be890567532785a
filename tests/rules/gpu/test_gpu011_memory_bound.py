from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import DEVICE, Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
from tests.rules.products import A100, multiplying
from traceadvisor.model.findings import Finding
from traceadvisor.rules.gpu.gpu011_memory_bound import MemoryBound


def test_pointwise_work_that_outweighs_products_is_found(tmp_path: Path) -> None:
    found = finding(MemoryBound(), multiplying(500, plain_us=1500), tmp_path)
    assert found.claims.total_ns == 1_500_000
    assert evidence(found, "kernel time that memory limits") == pytest.approx(0.75)
    assert found.saving.high_ns == pytest.approx(750_000)


def _thin_product() -> TraceBuilder:
    builder = TraceBuilder().device(0, **A100).step(0, 0, 100)
    shapes = [[1, 4096], [4096, 4096]]
    return builder.op("aten::mm", 0, 10, types=("c10::Half",) * 2, dims=shapes).launch(2, 5, kernel=(10, 90))


def test_products_that_must_move_more_than_they_compute_count(tmp_path: Path) -> None:
    found = finding(MemoryBound(), _thin_product(), tmp_path)
    assert evidence(found, "kernel time that memory limits") == 1.0


def test_products_are_not_claimed_for_it_is_no_fusing_that_makes_them_faster(tmp_path: Path) -> None:
    found = finding(MemoryBound(), _thin_product(), tmp_path)
    assert (found.claims.total_ns, found.saving.high_ns) == (0, 0)


def test_a_device_that_mostly_multiplies_is_clear(tmp_path: Path) -> None:
    assert clear(MemoryBound(), multiplying(1500, plain_us=500), tmp_path).value == pytest.approx(0.25)


def test_a_device_that_waits_is_clear(tmp_path: Path) -> None:
    remark = clear(MemoryBound(), multiplying(500, plain_us=1500, step_us=9000), tmp_path).remark
    assert remark == "the device is idle most of the time"


def test_kernels_too_short_to_move_much_do_not_count(tmp_path: Path) -> None:
    builder = multiplying(100, step_us=600)
    for number in range(100):
        builder.op("aten::relu", 10 + number, 11 + number)
        builder.launch(10 + number, 10.5 + number, kernel=(110 + 4 * number, 114 + 4 * number))
    assert clear(MemoryBound(), builder, tmp_path).value == 0


def test_work_of_unknown_extent_does_not_count(tmp_path: Path) -> None:
    assert clear(MemoryBound(), multiplying(500, plain_us=1500, plain="mylib::fused"), tmp_path).value == 0


def test_samples_of_memory_are_shown(tmp_path: Path) -> None:
    captured = Captured(multiplying(500, plain_us=1500), tmp_path)
    vars((facts := captured.facts()).run)["device_telemetry"] = replace(DEVICE, mean_memory_utilization_share=0.7)
    found = MemoryBound().check(facts)
    assert isinstance(found, Finding)
    assert evidence(found, "memory busy") == 0.7


def test_a_device_whose_rates_are_not_known_cannot_be_judged(tmp_path: Path) -> None:
    builder = TraceBuilder().device(0, name="A device to come").step(0, 0, 100)
    shapes = [[1, 4096], [4096, 4096]]
    builder.op("aten::mm", 0, 10, types=("c10::Half",) * 2, dims=shapes).launch(2, 5, kernel=(10, 90))
    assert "rates" in skipped(MemoryBound(), builder, tmp_path)


@pytest.mark.parametrize(("plain_us", "found"), [(899, False), (900, True)])
def test_memory_limits_the_device_from_half_of_kernel_time_on(plain_us: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(MemoryBound(), multiplying(900, plain_us=plain_us), tmp_path) is found


@pytest.mark.parametrize(("step_us", "found"), [(5001, False), (5000, True)])
def test_a_device_is_busy_from_three_tenths_of_the_step_on(step_us: int, tmp_path: Path, *, found: bool) -> None:
    assert is_found(MemoryBound(), multiplying(500, plain_us=1500, step_us=step_us), tmp_path) is found


@pytest.mark.parametrize(("kernel_us", "found"), [(4.9, False), (5, True)])
def test_kernels_move_much_from_five_microseconds_on(kernel_us: float, tmp_path: Path, *, found: bool) -> None:
    builder = multiplying(100, step_us=600)
    for number in range(80):
        at = 110 + 5 * number
        builder.op("aten::relu", 10 + number, 11 + number)
        builder.launch(10 + number, 10.5 + number, kernel=(at, at + kernel_us))
    assert is_found(MemoryBound(), builder, tmp_path) is found


def test_products_do_not_make_a_device_that_waits_one_that_memory_limits(tmp_path: Path) -> None:
    # Pointwise work takes 1,500 us of 5,200, as do products.
    assert not is_found(MemoryBound(), multiplying(1500, plain_us=1500, step_us=5200), tmp_path)
