from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data009_cpu_quota import CpuQuota


def _captured(
    folder: Path, *, wait_us: float = 50, workers: int = 8, granted: float | None = 4, throttled: float | None = None
) -> Captured:
    """Build a step of 100 us on a machine with 64 cores, some of which are granted."""
    builder = TraceBuilder().step(0, 0, 100).loader(0, wait_us).op("aten::mm", wait_us, 100)
    captured = Captured(builder, folder).with_loader(worker_count=workers)
    return captured.with_settings(cpu_count=64, cpu_quota=granted).with_processes(mean_throttled_share=throttled)


def test_more_workers_than_granted_cores_are_found_if_the_training_waits(tmp_path: Path) -> None:
    found = _captured(tmp_path).finding(CpuQuota())
    assert (evidence(found, "granted cores"), evidence(found, "loader workers and training processes")) == (4, 9)
    assert found.claims.total_ns == 50_000
    assert found.fix.change == (
        "DataLoader(dataset, num_workers=3)  # instead of num_workers=8; keep the other arguments"
    )
    assert found.locations == (LOOP,)


@pytest.mark.parametrize(("busy_cores", "threads", "proposed"), [(4, 4, 1), (2, 2, 2), (1, 1, 3)])
def test_workers_get_the_cores_that_the_training_leaves(
    busy_cores: float, threads: int, proposed: int, tmp_path: Path
) -> None:
    captured = _captured(tmp_path, throttled=0.4).with_settings(torch_threads=threads).made(1, workers=range(8))
    found = captured.with_processes(mean_cpu_cores=busy_cores).finding(CpuQuota())
    assert found.fix.settings["num_workers"] == proposed


def test_throttling_is_found_without_a_data_wait(tmp_path: Path) -> None:
    found = _captured(tmp_path, wait_us=0, throttled=0.4).finding(CpuQuota())
    assert evidence(found, "scheduler periods") == 0.4
    assert found.saving.high_ns == pytest.approx(40_000)


def test_throttled_threads_for_every_core_of_the_machine_are_found(tmp_path: Path) -> None:
    captured = _captured(tmp_path, wait_us=0, workers=2, throttled=0.4).with_settings(torch_threads=64)
    found = captured.finding(CpuQuota())
    assert found.fix.change == "torch.set_num_threads(4)"
    assert found.locations == ()
    assert not any("Workers" in caveat for caveat in found.caveats)


def test_threads_alone_do_not_delay_batches(tmp_path: Path) -> None:
    captured = _captured(tmp_path, workers=2).with_settings(torch_threads=64)
    assert captured.clear(CpuQuota()).remark == "they do not slow each other down"


def test_ranks_on_a_machine_share_the_granted_cores(tmp_path: Path) -> None:
    captured = _captured(tmp_path, workers=3, granted=4)
    assert captured.clear(CpuQuota()).value == 4
    assert evidence(captured.with_settings(ranks_on_host=2).finding(CpuQuota()), "loader workers") == 8


def test_too_many_workers_without_lost_time_are_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, wait_us=2, throttled=0.01).clear(CpuQuota()).value == pytest.approx(0.02)


@pytest.mark.parametrize("granted", [None, 64])
def test_without_a_quota_the_rule_is_skipped(granted: float | None, tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, granted=granted).outcome(CpuQuota()), Skipped)


@pytest.mark.parametrize(("wait_us", "throttled", "found"), [(4.9, 0.09, False), (5, None, True), (0, 0.1, True)])
def test_the_limits_are_five_percent_data_wait_and_a_tenth_of_the_periods(
    wait_us: float, throttled: float | None, tmp_path: Path, *, found: bool
) -> None:
    assert _captured(tmp_path, wait_us=wait_us, throttled=throttled).is_found(CpuQuota()) is found


@pytest.mark.parametrize(("workers", "found"), [(3, False), (4, True)])
def test_as_many_processes_as_granted_cores_are_clear(workers: int, tmp_path: Path, *, found: bool) -> None:
    assert _captured(tmp_path, workers=workers).is_found(CpuQuota()) is found


@pytest.mark.parametrize(("threads", "wanted"), [(3, None), (2, 4), (None, 2)])
def test_threads_of_all_ranks_on_a_machine_are_counted(threads: int | None, wanted: int | None, tmp_path: Path) -> None:
    captured = _captured(tmp_path, workers=0, throttled=0.4).with_settings(ranks_on_host=2, torch_threads=threads)
    if wanted is None:
        assert captured.is_found(CpuQuota())
    else:
        assert captured.clear(CpuQuota()).value == wanted
