from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from traceadvisor.model.findings import Skipped, Unit
from traceadvisor.rules.gpu.gpu024_subnormal_numbers import SubnormalNumbers


def _step(product_us: int) -> TraceBuilder:
    """A step of 1,000 us: a product of 0.8 million operations, then 50 us of another operator."""
    builder = TraceBuilder().step(0, 0, 1000)
    builder.op("aten::mm", 100, 100 + product_us, dims=[[100, 40], [40, 100]])
    return builder.op("aten::silu", 900, 950)


def _with(product_us: int, share: float | None, folder: Path) -> Captured:
    return Captured(_step(product_us), folder).with_settings(subnormal_share=share)


def test_products_that_take_far_longer_than_their_work_are_found(tmp_path: Path) -> None:
    found = _with(700, 0.1, tmp_path).finding(SubnormalNumbers())
    # 800,000 operations at 20 a nanosecond, 18,000 elements at one, and the call: 40 + 18 + 20 us of 750 us.
    assert found.saving.high_ns == pytest.approx(750_000 - 78_000)
    rates = [row.value for row in found.evidence if row.unit is Unit.FLOPS_PER_S]
    assert rates == [pytest.approx(800_000 / 700e-6)]
    assert found.fix.change is not None
    assert "set_flush_denormal(True)" in found.fix.change


@pytest.mark.parametrize("share", [0.0, 0.009])
def test_usual_numbers_are_clear_however_slow_the_products(share: float, tmp_path: Path) -> None:
    assert _with(700, share, tmp_path).clear(SubnormalNumbers()).value == share


def test_products_as_fast_as_their_work_are_clear(tmp_path: Path) -> None:
    """As where the tensors with such numbers are not used."""
    assert _with(300, 0.5, tmp_path).clear(SubnormalNumbers()).value == 0


def test_products_of_a_small_share_of_the_step_are_clear(tmp_path: Path) -> None:
    builder = _step(320).op("aten::linalg_svd", 1000, 1600).step(0, 1000, 2000)
    captured = Captured(builder, tmp_path).with_settings(subnormal_share=0.5)
    assert 0 < captured.clear(SubnormalNumbers()).value < 0.3


def test_numbers_that_were_not_looked_at_are_unknown(tmp_path: Path) -> None:
    assert isinstance(_with(700, None, tmp_path).outcome(SubnormalNumbers()), Skipped)


def test_gpus_compute_with_them_at_full_rate(tmp_path: Path) -> None:
    builder = _step(700).launch(110, 112, kernel=(120, 140))
    captured = Captured(builder, tmp_path).with_settings(subnormal_share=0.5)
    assert isinstance(captured.outcome(SubnormalNumbers()), Skipped)
