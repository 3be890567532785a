from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Found, Method, Skipped
from traceadvisor.rules.gpu.gpu020_autocast_casts import AutocastCasts


def _steps(cast_us: float, *, matrix_us: float = 20, rest_us: float = 0, late_us: float = 0) -> TraceBuilder:
    """Three steps without a GPU, each of ten casts, each with its call, and ten matrix products behind them.

    ``rest_us``: another operator at the end. ``late_us``: by how much the machine holds up the last cast.
    """
    builder, at = TraceBuilder(), 0.0
    for number in range(3):
        begin = at
        for position in range(10):
            took = cast_us + (late_us if position == 9 else 0)
            builder.op("aten::to", at, at + took + 2).op("aten::_to_copy", at + 1, at + 1 + took)
            at += took + 2
            builder.op("aten::addmm", at, at + matrix_us)
            at += matrix_us
        builder.op("aten::relu", at, at + rest_us + 1)
        at += rest_us + 1
        builder.step(number, begin, at)
    return builder


def _captured(builder: TraceBuilder, folder: Path, autocast: str | None = "bfloat16") -> Captured:
    return Captured(builder, folder).with_settings(autocast_dtype=autocast).loader()


def test_casts_that_take_long_beside_small_matrix_products_are_found(tmp_path: Path) -> None:
    found = _captured(_steps(10), tmp_path).finding(AutocastCasts())
    assert evidence(found, "time in conversions") == 120_000  # with their calls
    assert evidence(found, "usual conversions for each unit") == 0.5
    assert found.saving.method is Method.BOUND
    assert found.saving.high_ns >= 1.5 * 120_000
    assert "without autocast" in found.fix.summary


@pytest.mark.parametrize(("cast_us", "found"), [(5.9, False), (6, True)])
def test_casts_count_from_three_tenths_of_the_matrix_products(cast_us: float, tmp_path: Path, *, found: bool) -> None:
    assert isinstance(_captured(_steps(cast_us), tmp_path).outcome(AutocastCasts()), Found) is found


def test_one_cast_that_the_machine_held_up_is_no_reason_to_leave_autocast_off(tmp_path: Path) -> None:
    assert _captured(_steps(2, late_us=500), tmp_path).clear(AutocastCasts()).value == pytest.approx(0.1)


def test_casts_that_take_little_of_the_step_are_clear(tmp_path: Path) -> None:
    assert _captured(_steps(10, rest_us=3000), tmp_path).clear(AutocastCasts()).value < 0.05


def test_without_autocast_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(_steps(10), tmp_path, None).outcome(AutocastCasts()), Skipped)


def test_with_a_gpu_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = _steps(10).launch(1, 2, kernel=(3, 9))
    assert isinstance(_captured(builder, tmp_path).outcome(AutocastCasts()), Skipped)
