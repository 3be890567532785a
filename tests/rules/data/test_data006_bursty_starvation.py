from dataclasses import replace
from pathlib import Path

import pytest

from tests.rules.captured import LOOP, Captured, waiting
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Clear, Skipped
from traceadvisor.rules.data.data006_bursty_starvation import BurstyStarvation


def _captured(folder: Path, *turns_us: float, workers: int = 2) -> Captured:
    """Build turns of two steps from the longer of their two waits. The rest of a step takes 100 us."""
    waits = [0.0, *(wait for turn in turns_us for wait in (turn, 0.0))]
    return Captured(waiting(2), folder).with_loader(worker_count=workers, prefetch_factor=2).with_steps(waits)


PAUSES = [*[0.0] * 9, 400.0] * 2
"""Every twentieth step waits 400 us."""


def test_rare_long_waits_are_found_with_the_queue_that_bridges_them(tmp_path: Path) -> None:
    found = _captured(tmp_path, *PAUSES).finding(BurstyStarvation())
    assert evidence(found, "share of worker turns with long waits") == 0.1
    assert evidence(found, "longest wait") == 400_000
    # A pause of 400 us in every 20 steps of 100 us is a sixth of the time.
    assert evidence(found, "share of the run in long waits") == pytest.approx(1 / 6)
    assert found.saving.high_ns == pytest.approx(100_000 / 6)
    # The pause is as long as four steps: two workers prefetch two more batches each.
    assert found.fix.change is not None
    code, _, note = found.fix.change.partition("  # ")
    assert code == "DataLoader(dataset, num_workers=2, prefetch_factor=4)"
    assert note == "instead of prefetch_factor=2; keep the other arguments"
    assert found.locations == (LOOP,)


def test_a_data_loader_that_is_always_too_slow_is_clear(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, *[400.0, 0.0, 0.0] * 7).clear(BurstyStarvation())
    assert (outcome.label, outcome.remark) == (
        "share of worker turns with long waits",
        "the data loader is always too slow",
    )


@pytest.mark.parametrize(("usual_us", "found"), [(48.0, True), (52.0, False)])
def test_more_prefetching_is_not_proposed_for_a_queue_that_is_usually_empty(
    usual_us: float, tmp_path: Path, *, found: bool
) -> None:
    # Each turn of two steps waits once; its mean is compared with a quarter of the 100 ms of other work.
    turns = [*[usual_us] * 9, 900.0] * 2
    waits_ms = [0.0, *(wait for turn in turns for wait in (turn, 0.0))]
    captured = _captured(tmp_path).with_steps([1000 * wait for wait in waits_ms], step_us=100_000)
    assert captured.is_found(BurstyStarvation()) is found
    if not found:
        remark = captured.clear(BurstyStarvation()).remark
        assert remark == "the queue is usually empty, and prefetching more batches does not fill it"


def test_bursts_that_hold_nearly_all_loading_time_are_the_cause_whatever_usual_waits_are(tmp_path: Path) -> None:
    # As on a busy machine: usual turns take 60 ms beside steps of 100 ms, one in ten 4,000 ms: 88% of the time.
    turns = [*[60.0] * 6, 200.0, 200.0, 200.0, 4000.0] * 2
    waits_ms = [0.0, *(wait for turn in turns for wait in (turn, 0.0))]
    captured = _captured(tmp_path).with_steps([1000 * wait for wait in waits_ms], step_us=100_000)
    found = captured.finding(BurstyStarvation())
    assert evidence(found, "share of worker turns with long waits") == 0.1
    assert (found.fix.summary, found.fix.change) == ("Smooth the data source", None)  # no queue fills beforehand


def test_the_queue_is_as_long_as_the_timed_batches_need(tmp_path: Path) -> None:
    # Every fortieth batch takes 1,000 us, the others 20: its worker hands it over while the other made ten more.
    captured = _captured(tmp_path, *PAUSES).made(20, slow=dict.fromkeys(range(0, 200, 40), 980), count=200)
    found = captured.finding(BurstyStarvation())
    curve = captured.facts().worker_curve
    assert curve is not None
    needed = curve.shortest_prefetch(2)
    assert needed is not None
    assert f"prefetch_factor={needed})" in (found.fix.change or "")
    assert curve.at(2, needed).is_hidden
    assert not curve.at(2, needed - 1).is_hidden


def test_pauses_that_are_too_long_on_average_are_not_bridged_by_a_queue(tmp_path: Path) -> None:
    # Two workers and 100 us of other work per step: up to 200 us for a batch, and these take 20 + 3,980 / 20.
    slow = dict.fromkeys(range(0, 400, 20), 3980)
    found = _captured(tmp_path, *PAUSES).made(20, slow=slow, count=400, workers=[0, 1]).finding(BurstyStarvation())
    assert (found.fix.summary, found.fix.change) == ("Smooth the data source", None)


def test_workers_that_make_usual_batches_fast_have_bursts_whatever_usual_waits_are(tmp_path: Path) -> None:
    turns = [*[60.0] * 9, 900.0] * 2
    waits_ms = [0.0, *(wait for turn in turns for wait in (turn, 0.0))]
    captured = _captured(tmp_path).with_steps([1000 * wait for wait in waits_ms], step_us=100_000)
    assert not captured.is_found(BurstyStarvation())
    assert captured.made(20, workers=[0, 1]).is_found(BurstyStarvation())


def test_a_usual_time_to_take_a_batch_is_no_sign_of_an_empty_queue(tmp_path: Path) -> None:
    # Taking a batch that is ready takes 1 ms beside 2 ms of other work.
    waits_us = [1000.0] * 19 + [9000.0]
    captured = _captured(tmp_path).with_steps(waits_us * 4, step_us=2000)
    assert captured.is_found(BurstyStarvation())


def test_if_no_queue_bridges_the_pauses_no_number_is_proposed(tmp_path: Path) -> None:
    captured = _captured(tmp_path, *PAUSES).made(20, slow={1020: 60_000}, count=2000)
    fix = captured.finding(BurstyStarvation()).fix
    assert (fix.summary, fix.change) == ("Smooth the data source", None)


def test_equal_waits_in_every_turn_are_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, *[400.0] * 20).clear(BurstyStarvation()).value == 0


def test_rare_waits_with_a_small_share_of_the_run_are_clear(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, *[0.0] * 99, 400.0).clear(BurstyStarvation())
    assert outcome.value == pytest.approx(0.02, rel=0.05)


def test_long_waits_among_many_short_ones_are_clear(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, *[80.0, 0.0, 80.0, 0.0, 0.0, 80.0, 0.0, 0.0, 80.0, 150.0] * 2).clear(
        BurstyStarvation()
    )
    assert outcome.remark == "much of the waiting time is in short waits"


def test_with_few_steps_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, *PAUSES[:9]).outcome(BurstyStarvation()), Skipped)


def test_a_loader_without_workers_waits_for_rare_long_batches_too(tmp_path: Path) -> None:
    captured = _captured(tmp_path, workers=0).with_steps([0.0] * 10 + ([400.0] + [1.0] * 11) * 4)
    found = captured.finding(BurstyStarvation())
    assert found.fix.summary.startswith("Some batches take far longer than others")
    assert found.fix.change is None  # no queue to make longer
    assert evidence(found, "share of the run in long waits") == pytest.approx(1600 / 7344, rel=0.01)
    assert evidence(found, "longest wait") == pytest.approx(399_000, rel=0.01)


@pytest.mark.parametrize(("core_wait_us", "found"), [(480, True), (500, False), (None, True)])
def test_batches_that_took_long_because_no_core_was_free_do_not_count(
    core_wait_us: float | None, tmp_path: Path, *, found: bool
) -> None:
    captured = _captured(tmp_path, *PAUSES).made(20, slow=dict.fromkeys(range(0, 200, 40), 980), count=200)
    waited_ns = None if core_wait_us is None else round(core_wait_us * 1000)
    run = captured.facts().run.captured
    assert run is not None
    batches = [replace(one, core_wait_ns=waited_ns if one.fetch_ns > 50_000 else 0) for one in run.batches]
    outcome = captured.with_run(batches=tuple(batches)).outcome(BurstyStarvation())
    assert isinstance(outcome, Clear) is not found


def test_without_settings_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(BurstyStarvation(), waiting(2), tmp_path)


@pytest.mark.parametrize(("turns", "found"), [(162, False), (161, True)])
def test_long_waits_count_from_three_percent_of_the_training_time(turns: int, tmp_path: Path, *, found: bool) -> None:
    # A wait of 1,000 us in so many turns of two steps of 100 us: 500 / (100 + 500 / turns) / turns.
    captured = _captured(tmp_path, *[*[0.0] * (turns - 1), 1000.0] * 2)
    assert captured.is_found(BurstyStarvation()) is found


@pytest.mark.parametrize(("wait_us", "found"), [(99, False), (100, True)])
def test_a_wait_is_long_from_half_of_the_rest_of_the_step(wait_us: float, tmp_path: Path, *, found: bool) -> None:
    # The mean over the two steps of a turn is half of the wait.
    captured = _captured(tmp_path, *[*[0.0] * 9, wait_us] * 2)
    assert captured.is_found(BurstyStarvation()) is found


def test_a_single_long_wait_is_no_property_of_the_loader(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, *[0.0] * 9, 5000.0, *[0.0] * 9, 200.0).clear(BurstyStarvation())
    assert outcome.remark == "one of them holds most of their time"


@pytest.mark.parametrize(("quiet", "found"), [(6, False), (7, True)])
def test_waits_are_rare_in_up_to_three_tenths_of_the_turns(quiet: int, tmp_path: Path, *, found: bool) -> None:
    captured = _captured(tmp_path, *[0.0] * quiet * 2, *[400.0] * 6)
    assert captured.is_found(BurstyStarvation()) is found


@pytest.mark.parametrize(("short_us", "found"), [(51, False), (50, True)])
def test_long_waits_count_from_four_fifths_of_the_waiting_time(short_us: float, tmp_path: Path, *, found: bool) -> None:
    # Two waits take 400 us, and four take 50 us.
    captured = _captured(tmp_path, *[0.0] * 14, *[400.0] * 2, *[short_us] * 4)
    assert captured.is_found(BurstyStarvation()) is found


@pytest.mark.parametrize(("turns", "is_looked_at"), [(9, False), (10, True)])
def test_the_rule_needs_ten_turns(turns: int, tmp_path: Path, *, is_looked_at: bool) -> None:
    outcome = _captured(tmp_path, *[0.0] * turns).outcome(BurstyStarvation())
    assert isinstance(outcome, Skipped) is not is_looked_at


def test_without_a_setting_each_worker_prefetches_two_batches(tmp_path: Path) -> None:
    captured = _captured(tmp_path, *PAUSES).with_loader(prefetch_factor=None)
    change = captured.finding(BurstyStarvation()).fix.change
    assert change == "DataLoader(dataset, num_workers=2, prefetch_factor=4)  # keep the other arguments"
