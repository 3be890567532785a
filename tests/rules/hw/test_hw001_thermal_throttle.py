from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.hw.hw001_thermal_throttle import ThermalThrottle


def _busy() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(0, 100))


def test_a_gpu_slowed_by_heat_saves_at_most_the_lost_clock(tmp_path: Path) -> None:
    found = Captured(_busy(), tmp_path).device(thermal=0.6, clock=0.75).finding(ThermalThrottle())
    assert evidence(found, "samples with thermal slowdown") == 0.6
    assert found.saving.high_ns == pytest.approx(25_000)


def test_single_samples_with_thermal_slowdown_are_clear(tmp_path: Path) -> None:
    assert Captured(_busy(), tmp_path).device(thermal=0.04).clear(ThermalThrottle()).value == 0.04


def test_without_clock_event_reasons_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(Captured(_busy(), tmp_path).device().outcome(ThermalThrottle()), Skipped)


def test_without_gpu_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "The GPU was not sampled" in skipped(ThermalThrottle(), _busy(), tmp_path)


@pytest.mark.parametrize(("share", "found"), [(0.049, False), (0.05, True)])
def test_heat_counts_from_five_percent_of_the_samples(share: float, tmp_path: Path, *, found: bool) -> None:
    assert Captured(_busy(), tmp_path).device(thermal=share).is_found(ThermalThrottle()) is found
