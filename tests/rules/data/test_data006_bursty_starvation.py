from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data006_bursty_starvation import BurstyStarvation


def _step() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).loader(0, 2).op("aten::mm", 2, 100)


def _captured(folder: Path, *turns_us: float, workers: int = 2) -> Captured:
    """Turns of two steps by the longer of their two waits; steps take 100 us beside."""
    waits = [0.0, *(wait for turn in turns_us for wait in (turn, 0.0))]
    return Captured(_step(), folder).with_loader(worker_count=workers, prefetch_factor=2).with_steps(waits)


PAUSES = [*[0.0] * 9, 400.0] * 2
"""Every twentieth step waits 400 us."""


def test_few_long_waits_are_found_with_a_queue_that_bridges_them(tmp_path: Path) -> None:
    found = _captured(tmp_path, *PAUSES).finding(BurstyStarvation())
    assert evidence(found, "turns of the workers with such waits") == 0.1
    assert evidence(found, "longest wait") == 400_000
    # A pause of 400 us in every 20 steps of 100: a sixth of the time.
    assert evidence(found, "training time in long waits") == pytest.approx(1 / 6)
    assert found.saving.high_ns == pytest.approx(100_000 / 6)
    # Four steps' worth of pause: two batches more from each of two workers.
    assert found.fix.change == "DataLoader(..., prefetch_factor=2) -> DataLoader(..., prefetch_factor=4)"
    assert found.locations == (LOOP,)


def test_a_loader_that_is_too_slow_altogether_is_another_rules(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, *[400.0, 0.0, 0.0] * 7).clear(BurstyStarvation())
    assert (outcome.label, outcome.remark) == (
        "turns of the workers with long waits",
        "the loader is too slow altogether, not now and then",
    )


def test_waits_that_are_the_same_in_every_turn_are_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, *[400.0] * 20).clear(BurstyStarvation()).value == 0


def test_rare_waits_that_take_little_of_the_run_are_clear(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, *[0.0] * 99, 400.0).clear(BurstyStarvation())
    assert outcome.value == pytest.approx(0.02, rel=0.05)


def test_long_waits_among_many_short_ones_are_clear(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, *[80.0, 0.0, 80.0, 0.0, 0.0, 80.0, 0.0, 0.0, 80.0, 150.0] * 2).clear(
        BurstyStarvation()
    )
    assert outcome.remark == "short waits make up a good part"


def test_a_few_steps_tell_nothing(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, *PAUSES[:9]).outcome(BurstyStarvation()), Skipped)


def test_a_loader_without_workers_has_no_queue(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, *PAUSES, workers=0).outcome(BurstyStarvation())
    assert isinstance(outcome, Skipped)
    assert "no workers" in outcome.reason


def test_without_settings_the_rule_cannot_look(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(BurstyStarvation(), _step(), tmp_path)


@pytest.mark.parametrize(("turns", "found"), [(162, False), (161, True)])
def test_long_waits_count_from_three_percent_of_the_training_time(turns: int, tmp_path: Path, *, found: bool) -> None:
    # One wait of 1,000 us among turns of two steps of 100 us: 500 / (100 + 500 / turns) / turns.
    captured = _captured(tmp_path, *[0.0] * (turns - 1), 1000.0)
    assert captured.is_found(BurstyStarvation()) is found


@pytest.mark.parametrize(("wait_us", "found"), [(99, False), (100, True)])
def test_a_wait_is_long_from_half_of_the_rest_of_the_step_on(wait_us: float, tmp_path: Path, *, found: bool) -> None:
    # Half of it is the mean of the turn's two steps.
    captured = _captured(tmp_path, *[0.0] * 9, wait_us)
    assert captured.is_found(BurstyStarvation()) is found


@pytest.mark.parametrize(("quiet", "found"), [(6, False), (7, True)])
def test_up_to_three_tenths_of_the_turns_wait_now_and_then(quiet: int, tmp_path: Path, *, found: bool) -> None:
    captured = _captured(tmp_path, *[0.0] * quiet * 2, *[400.0] * 6)
    assert captured.is_found(BurstyStarvation()) is found


@pytest.mark.parametrize(("short_us", "found"), [(51, False), (50, True)])
def test_four_fifths_of_the_waiting_is_in_long_waits(short_us: float, tmp_path: Path, *, found: bool) -> None:
    # Two waits of 400 us against four of 50.
    captured = _captured(tmp_path, *[0.0] * 14, *[400.0] * 2, *[short_us] * 4)
    assert captured.is_found(BurstyStarvation()) is found


@pytest.mark.parametrize(("turns", "is_looked_at"), [(9, False), (10, True)])
def test_turns_are_looked_at_from_ten_on(turns: int, tmp_path: Path, *, is_looked_at: bool) -> None:
    outcome = _captured(tmp_path, *[0.0] * turns).outcome(BurstyStarvation())
    assert isinstance(outcome, Skipped) is not is_looked_at


def test_without_a_setting_two_batches_a_worker_are_prefetched(tmp_path: Path) -> None:
    captured = _captured(tmp_path, *PAUSES).with_loader(prefetch_factor=None)
    change = captured.finding(BurstyStarvation()).fix.change
    assert change == "DataLoader(..., prefetch_factor=2) -> DataLoader(..., prefetch_factor=4)"
