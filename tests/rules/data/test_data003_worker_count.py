from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured, workers
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data003_worker_count import WorkerCount


def _step(wait_us: int) -> TraceBuilder:
    """Build a step of 100 us that waits for its batch and then computes."""
    builder = TraceBuilder().step(0, 0, 100).loader(0, wait_us).op("aten::mm", wait_us, wait_us + 2)
    return builder.launch(wait_us, wait_us + 1, kernel=(wait_us, 100))


def test_too_few_workers_are_found_with_the_needed_number(tmp_path: Path) -> None:
    # Two workers deliver a batch every 100 us, so one takes 200 us. The rest takes 50 us: four workers and one spare.
    found = Captured(_step(50), tmp_path).loader(workers=2).finding(WorkerCount())
    assert evidence(found, "workers needed") == 5
    assert found.fix.change is not None
    assert "num_workers=5" in found.fix.change
    assert found.locations == (LOOP,)


def test_proposed_workers_are_limited_by_free_cores(tmp_path: Path) -> None:
    found = Captured(_step(50), tmp_path).loader(workers=2).cores(4).finding(WorkerCount())
    assert found.fix.change is not None
    assert "num_workers=3" in found.fix.change


def test_without_free_cores_no_more_workers_are_proposed(tmp_path: Path) -> None:
    outcome = Captured(_step(50), tmp_path).loader(workers=2).cores(3).clear(WorkerCount())
    assert outcome.remark is not None
    assert "no CPU core is free" in outcome.remark


def test_many_idle_workers_are_too_many(tmp_path: Path) -> None:
    # The workers keep nine tenths of a core busy: one worker and one spare.
    captured = Captured(_step(0), tmp_path).loader(workers=8).sampled(busy_workers=workers(0.45, 0.45))
    found = captured.finding(WorkerCount())
    assert evidence(found, "workers needed") == 2
    assert found.saving.high_ns == 0


def test_the_right_number_of_workers_is_clear(tmp_path: Path) -> None:
    captured = Captured(_step(0), tmp_path).loader(workers=4).sampled(busy_workers=workers(0.9, 0.9))
    assert captured.clear(WorkerCount()).remark == "4 workers hide the loading"


def test_a_data_loader_without_workers_is_left_to_data002(tmp_path: Path) -> None:
    outcome = Captured(_step(50), tmp_path).loader(workers=0).outcome(WorkerCount())
    assert isinstance(outcome, Skipped)
    assert "DATA002" in outcome.reason


def test_without_settings_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(WorkerCount(), _step(50), tmp_path)


def test_sleeping_workers_are_not_too_many(tmp_path: Path) -> None:
    # They may wait for a network, and then all of them are needed.
    captured = Captured(_step(0), tmp_path).loader(workers=8).sampled(busy_workers=workers(0.02, 0.02))
    assert captured.clear(WorkerCount()).remark == "8 workers hide the loading"


@pytest.mark.parametrize(("wait_us", "found"), [(49, False), (50, True)])
def test_a_wait_counts_from_five_percent_of_the_step(wait_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us).op("aten::mm", wait_us, 1000)
    captured = Captured(builder, tmp_path).loader(workers=1).sampled(busy_workers=workers(0.5))
    assert captured.is_found(WorkerCount()) is found


@pytest.mark.parametrize(("busy", "found"), [(0.79, False), (0.8, True)])
def test_worker_cpu_time_counts_from_four_fifths_of_a_core(busy: float, tmp_path: Path, *, found: bool) -> None:
    captured = Captured(_step(0), tmp_path).loader(workers=8).sampled(busy_workers=workers(busy))
    assert captured.is_found(WorkerCount()) is found


@pytest.mark.parametrize(("count", "found"), [(4, False), (5, True)])
def test_more_than_twice_the_workers_needed_are_too_many(count: int, tmp_path: Path, *, found: bool) -> None:
    # Loading keeps nine tenths of a core busy: one worker and one spare.
    captured = Captured(_step(0), tmp_path).loader(workers=count).sampled(busy_workers=workers(0.9))
    assert captured.is_found(WorkerCount()) is found


def test_with_a_wait_of_five_percent_the_needed_number_follows_from_the_pace(tmp_path: Path) -> None:
    # One worker delivers a batch every 1,000 us, and the rest takes 950 us: two workers and one spare.
    builder = TraceBuilder().step(0, 0, 1000).loader(0, 50).op("aten::mm", 50, 1000)
    captured = Captured(builder, tmp_path).loader(workers=1).sampled(busy_workers=workers(0.5))
    assert evidence(captured.finding(WorkerCount()), "workers needed") == 3


def test_the_needed_number_follows_from_worker_cpu_time(tmp_path: Path) -> None:
    captured = Captured(_step(0), tmp_path).loader(workers=8).sampled(busy_workers=workers(0.9, 0.9))
    assert evidence(captured.finding(WorkerCount()), "workers needed") == 3


def test_known_free_cores_are_shown(tmp_path: Path) -> None:
    captured = Captured(_step(50), tmp_path).loader(workers=2).with_settings(cpu_count=None)
    assert "CPU cores free for workers" not in [row.label for row in captured.finding(WorkerCount()).evidence]
    assert evidence(captured.cores(4).finding(WorkerCount()), "CPU cores free for workers") == 3
