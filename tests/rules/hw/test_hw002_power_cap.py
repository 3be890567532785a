from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Effort, Skipped
from traceadvisor.model.telemetry import ClockEventReason
from traceadvisor.rules.hw.hw002_power_cap import PowerCap


def _captured(folder: Path, *, power: float | None = 0.9, clock: float = 0.75, limit: float = 300) -> Captured:
    """A GPU with a highest limit of 400 W, busy during a whole step of 100 us."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(0, 100))
    captured = Captured(builder, folder).with_sampled_device(power_limit_watts=limit, max_power_limit_watts=400)
    return captured.with_device(power_share=power, mean_sm_clock_share=clock, mean_power_watts=298)


def test_a_lowered_limit_that_lowers_the_clock_is_found(tmp_path: Path) -> None:
    found = _captured(tmp_path).finding(PowerCap())
    assert (evidence(found, "lost share"), evidence(found, "power limit")) == (0.25, 300)
    assert found.fix.change == "nvidia-smi -i 0 -pl 400"
    assert found.saving.high_ns == pytest.approx(25_000)


def test_a_gpu_at_its_highest_limit_is_clear(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, limit=400).clear(PowerCap())
    assert (outcome.value, outcome.remark) == (1.0, "the GPU runs at its default power limit")


@pytest.mark.parametrize(("limit", "highest"), [(450, 600), (460, 600), (450, None)])
def test_a_gpu_at_its_default_limit_is_clear_even_if_more_is_allowed(
    limit: float, highest: float | None, tmp_path: Path
) -> None:
    captured = _captured(tmp_path).with_sampled_device(
        power_limit_watts=limit, default_power_limit_watts=450, max_power_limit_watts=highest
    )
    assert captured.clear(PowerCap()).value == pytest.approx(limit / 450)


def test_the_fix_raises_the_limit_to_the_default(tmp_path: Path) -> None:
    captured = _captured(tmp_path).with_sampled_device(
        power_limit_watts=350, default_power_limit_watts=450, max_power_limit_watts=600
    )
    found = captured.finding(PowerCap())
    assert found.fix.change is not None
    assert found.fix.change.endswith("-pl 450")
    assert evidence(found, "default power limit") == 450


def test_a_power_brake_is_found_at_any_limit(tmp_path: Path) -> None:
    brake = {ClockEventReason.HW_POWER_BRAKE: 0.6}
    found = _captured(tmp_path, limit=400).with_device(clock_event_shares=brake).finding(PowerCap())
    assert evidence(found, "samples with a power brake") == 0.6
    assert found.effort is Effort.REFACTOR
    assert "power supply" in found.fix.summary
    assert not any("Ask first" in caveat for caveat in found.caveats), "nobody lowered a limit"


def test_a_limit_that_lowers_the_clock_by_little_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, clock=0.97).clear(PowerCap()).label == "lost share of the maximum clock"


def test_single_samples_at_the_limit_are_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, power=0.1).clear(PowerCap()).value == 0.1


def test_without_clock_event_reasons_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, power=None).outcome(PowerCap()), Skipped)


def test_without_gpu_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(0, 100))
    assert "The GPU was not sampled" in skipped(PowerCap(), builder, tmp_path)


@pytest.mark.parametrize(
    ("power", "clock", "limit", "found"),
    [
        *((0.2, 0.95, 391, True), (0.19, 0.95, 391, False)),
        *((0.2, 0.951, 391, False), (0.2, 0.95, 392, False)),
    ],
)
def test_power_counts_from_20_percent_of_samples_5_percent_of_clock_and_a_limit_below_98_percent(
    power: float, clock: float, limit: float, tmp_path: Path, *, found: bool
) -> None:
    assert _captured(tmp_path, power=power, clock=clock, limit=limit).is_found(PowerCap()) is found


@pytest.mark.parametrize(("share", "found"), [(0.19, False), (0.2, True)])
def test_a_power_brake_counts_from_20_percent_of_the_samples_on(share: float, tmp_path: Path, *, found: bool) -> None:
    brake = {ClockEventReason.HW_POWER_BRAKE: share}
    assert _captured(tmp_path, limit=400).with_device(clock_event_shares=brake).is_found(PowerCap()) is found
