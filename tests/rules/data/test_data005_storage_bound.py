from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data005_storage_bound import StorageBound


def _waiting(wait_us: int = 60) -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).loader(0, wait_us).op("aten::mm", wait_us, 100)


def test_a_wait_with_reads_outstanding_is_found(tmp_path: Path) -> None:
    # A quarter of eight cores wait for storage: half a core for each of four workers.
    found = Captured(_waiting(), tmp_path).loader(workers=4).sampled(iowait=0.25).finding(StorageBound())
    assert evidence(found, "I/O wait for each") == pytest.approx(0.5)


def test_a_wait_without_reads_is_clear(tmp_path: Path) -> None:
    outcome = Captured(_waiting(), tmp_path).loader(workers=4).sampled(iowait=0.01).clear(StorageBound())
    assert outcome.label == "I/O wait for each loading process"


def test_reads_without_a_wait_are_clear(tmp_path: Path) -> None:
    outcome = Captured(_waiting(2), tmp_path).loader(workers=4).sampled(iowait=0.9).clear(StorageBound())
    assert outcome.label == "exposed data wait"


def test_without_samples_of_the_host_the_rule_cannot_look(tmp_path: Path) -> None:
    assert "The CPU was not sampled" in skipped(StorageBound(), _waiting(), tmp_path)


@pytest.mark.parametrize(("wait_us", "iowait", "found"), [(50, 0.25, True), (49, 0.25, False), (50, 0.249, False)])
def test_it_takes_five_percent_of_waiting_and_half_of_each_process_s_time_in_reads(
    wait_us: int, iowait: float, tmp_path: Path, *, found: bool
) -> None:
    # Of eight cores a quarter waits: half a core for each of four workers.
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us).op("aten::mm", wait_us, 1000)
    captured = Captured(builder, tmp_path).loader(workers=4).sampled(iowait=iowait)
    assert captured.is_found(StorageBound()) is found


def test_the_reads_of_a_host_are_those_of_all_its_ranks(tmp_path: Path) -> None:
    # A quarter of eight cores is half a core for each of one rank's four workers, a quarter for those of two ranks.
    captured = Captured(_waiting(), tmp_path).loader(workers=4).sampled(iowait=0.25)
    assert captured.with_settings(ranks_on_host=2).clear(StorageBound()).value == pytest.approx(0.25)


@pytest.mark.parametrize("workers", [0, None])
def test_a_loader_without_workers_reads_in_one_process(workers: int | None, tmp_path: Path) -> None:
    found = Captured(_waiting(), tmp_path).loader(workers=workers).sampled(iowait=0.0625).finding(StorageBound())
    assert evidence(found, "I/O wait for each") == 0.5


def test_without_a_count_of_cores_the_rule_cannot_look(tmp_path: Path) -> None:
    outcome = Captured(_waiting(), tmp_path).with_settings(cpu_count=None).sampled(iowait=0.9).outcome(StorageBound())
    assert isinstance(outcome, Skipped)
    assert "I/O wait was not measured" in outcome.reason


def test_what_was_read_is_told_where_it_was_measured(tmp_path: Path) -> None:
    captured = Captured(_waiting(), tmp_path).loader(workers=4).sampled(iowait=0.9)
    assert "read from storage" not in [row.label for row in captured.finding(StorageBound()).evidence]
    captured.with_processes(mean_read_bytes_per_s=5e6)
    assert evidence(captured.finding(StorageBound()), "read from storage") == 5e6
