from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured, workers
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data003_worker_count import WorkerCount


def _step(wait_us: int) -> TraceBuilder:
    """A step of 100 us that waits for its batch and then computes."""
    builder = TraceBuilder().step(0, 0, 100).loader(0, wait_us).op("aten::mm", wait_us, wait_us + 2)
    return builder.launch(wait_us, wait_us + 1, kernel=(wait_us, 100))


def test_too_few_workers_are_found_and_the_number_that_hides_the_loading_is_named(tmp_path: Path) -> None:
    # Two workers deliver a batch each 100 us, so one takes 200; the rest of the step takes 50: four, and one to spare.
    found = Captured(_step(50), tmp_path).loader(workers=2).finding(WorkerCount())
    assert evidence(found, "workers needed") == 5
    assert found.fix.change is not None
    assert "num_workers=5" in found.fix.change
    assert found.locations == (LOOP,)


def test_no_more_workers_are_proposed_than_cores_are_free(tmp_path: Path) -> None:
    found = Captured(_step(50), tmp_path).loader(workers=2).cores(4).finding(WorkerCount())
    assert found.fix.change is not None
    assert "num_workers=3" in found.fix.change


def test_where_no_core_is_free_more_workers_are_not_proposed(tmp_path: Path) -> None:
    outcome = Captured(_step(50), tmp_path).loader(workers=2).cores(3).clear(WorkerCount())
    assert outcome.remark is not None
    assert "no core is free" in outcome.remark


def test_many_idle_workers_are_found_to_be_too_many(tmp_path: Path) -> None:
    # Nine tenths of a core's work in all: one worker, and one to spare.
    captured = Captured(_step(0), tmp_path).loader(workers=8).sampled(busy_workers=workers(0.45, 0.45))
    found = captured.finding(WorkerCount())
    assert evidence(found, "workers needed") == 2
    assert found.saving.high_ns == 0


def test_a_number_that_fits_is_clear(tmp_path: Path) -> None:
    captured = Captured(_step(0), tmp_path).loader(workers=4).sampled(busy_workers=workers(0.9, 0.9))
    assert captured.clear(WorkerCount()).remark == "4 workers hide the loading"


def test_a_loader_without_workers_is_another_rules(tmp_path: Path) -> None:
    outcome = Captured(_step(50), tmp_path).loader(workers=0).outcome(WorkerCount())
    assert isinstance(outcome, Skipped)
    assert "DATA002" in outcome.reason


def test_without_settings_the_rule_cannot_look(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(WorkerCount(), _step(50), tmp_path)


def test_workers_that_mostly_sleep_are_not_called_too_many(tmp_path: Path) -> None:
    # They may wait for a network, and each of them is needed for that.
    captured = Captured(_step(0), tmp_path).loader(workers=8).sampled(busy_workers=workers(0.02, 0.02))
    assert captured.clear(WorkerCount()).remark == "8 workers hide the loading"


@pytest.mark.parametrize(("wait_us", "found"), [(49, False), (50, True)])
def test_a_wait_counts_from_five_percent_of_the_step(wait_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us).op("aten::mm", wait_us, 1000)
    captured = Captured(builder, tmp_path).loader(workers=1).sampled(busy_workers=workers(0.5))
    assert captured.is_found(WorkerCount()) is found


@pytest.mark.parametrize(("busy", "found"), [(0.79, False), (0.8, True)])
def test_workers_tell_how_long_loading_takes_from_four_fifths_of_a_core_on(
    busy: float, tmp_path: Path, *, found: bool
) -> None:
    captured = Captured(_step(0), tmp_path).loader(workers=8).sampled(busy_workers=workers(busy))
    assert captured.is_found(WorkerCount()) is found


@pytest.mark.parametrize(("count", "found"), [(4, False), (5, True)])
def test_more_than_twice_the_workers_needed_are_too_many(count: int, tmp_path: Path, *, found: bool) -> None:
    # Nine tenths of a core's work: one worker, and one to spare.
    captured = Captured(_step(0), tmp_path).loader(workers=count).sampled(busy_workers=workers(0.9))
    assert captured.is_found(WorkerCount()) is found


def test_at_a_wait_of_five_percent_the_pace_of_the_workers_tells_what_loading_takes(tmp_path: Path) -> None:
    # One worker delivers a batch each 1,000 us, and the rest of the step takes 950: two, and one to spare.
    builder = TraceBuilder().step(0, 0, 1000).loader(0, 50).op("aten::mm", 50, 1000)
    captured = Captured(builder, tmp_path).loader(workers=1).sampled(busy_workers=workers(0.5))
    assert evidence(captured.finding(WorkerCount()), "workers needed") == 3


def test_cores_that_workers_keep_busy_tell_how_many_are_needed(tmp_path: Path) -> None:
    captured = Captured(_step(0), tmp_path).loader(workers=8).sampled(busy_workers=workers(0.9, 0.9))
    assert evidence(captured.finding(WorkerCount()), "workers needed") == 3


def test_free_cores_are_told_where_they_are_known(tmp_path: Path) -> None:
    captured = Captured(_step(50), tmp_path).loader(workers=2).with_settings(cpu_count=None)
    assert "cores free for workers" not in [row.label for row in captured.finding(WorkerCount()).evidence]
    assert evidence(captured.cores(4).finding(WorkerCount()), "cores free for workers") == 3
