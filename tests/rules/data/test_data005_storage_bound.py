from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured, waiting
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data005_storage_bound import StorageBound


def test_a_wait_with_outstanding_reads_is_found(tmp_path: Path) -> None:
    # A quarter of eight cores waits for storage: half a core per worker.
    found = Captured(waiting(60), tmp_path).loader(workers=4).sampled(iowait=0.25).finding(StorageBound())
    assert evidence(found, "I/O wait per loading process") == pytest.approx(0.5)


def test_a_wait_without_reads_is_clear(tmp_path: Path) -> None:
    outcome = Captured(waiting(60), tmp_path).loader(workers=4).sampled(iowait=0.01).clear(StorageBound())
    assert outcome.label == "I/O wait per loading process"


def test_reads_without_a_wait_are_clear(tmp_path: Path) -> None:
    outcome = Captured(waiting(2), tmp_path).loader(workers=4).sampled(iowait=0.9).clear(StorageBound())
    assert outcome.label == "data wait"


def test_without_cpu_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "The CPU was not sampled" in skipped(StorageBound(), waiting(60), tmp_path)


@pytest.mark.parametrize(("wait_us", "iowait", "found"), [(50, 0.25, True), (49, 0.25, False), (50, 0.249, False)])
def test_the_limits_are_five_percent_data_wait_and_half_of_the_time_in_io_wait(
    wait_us: int, iowait: float, tmp_path: Path, *, found: bool
) -> None:
    # A quarter of eight cores waits: half a core per worker.
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us).op("aten::mm", wait_us, 1000)
    captured = Captured(builder, tmp_path).loader(workers=4).sampled(iowait=iowait)
    assert captured.is_found(StorageBound()) is found


def test_io_wait_is_divided_by_the_loading_processes_of_all_ranks(tmp_path: Path) -> None:
    # A quarter of eight cores is half a core for each of four workers, and a quarter of a core with two ranks.
    captured = Captured(waiting(60), tmp_path).loader(workers=4).sampled(iowait=0.25)
    assert captured.with_settings(ranks_on_host=2).clear(StorageBound()).value == pytest.approx(0.25)


@pytest.mark.parametrize(("workers", "found"), [(0, False), (1, False), (3, False), (4, True), (None, True)])
def test_few_processes_that_wait_for_storage_need_more_workers_first(
    workers: int | None, tmp_path: Path, *, found: bool
) -> None:
    captured = Captured(waiting(60), tmp_path).loader(workers=workers).sampled(iowait=0.9)
    assert captured.is_found(StorageBound()) is found


def test_with_an_unknown_number_of_cores_the_rule_is_skipped(tmp_path: Path) -> None:
    outcome = Captured(waiting(60), tmp_path).with_settings(cpu_count=None).sampled(iowait=0.9).outcome(StorageBound())
    assert isinstance(outcome, Skipped)
    assert "I/O wait was not measured" in outcome.reason


def test_a_measured_read_rate_is_shown(tmp_path: Path) -> None:
    captured = Captured(waiting(60), tmp_path).loader(workers=4).sampled(iowait=0.9)
    assert "read rate from storage" not in [row.label for row in captured.finding(StorageBound()).evidence]
    captured.with_processes(mean_read_bytes_per_s=5e6)
    assert evidence(captured.finding(StorageBound()), "read rate from storage") == 5e6
