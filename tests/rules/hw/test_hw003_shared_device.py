from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.hw.hw003_shared_device import SharedDevice

GB = 10**9


def _captured(folder: Path, foreign: float | None, *, busy: float | None = None) -> Captured:
    """A training that keeps a GPU with 80 GB busy for half of a step of 100 us."""
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(50, 100))
    captured = Captured(builder, folder).with_sampled_device(memory_bytes=80 * GB)
    return captured.with_device(peak_foreign_memory_bytes=foreign, mean_utilization_share=busy)


def test_memory_of_other_processes_is_found_without_a_saving(tmp_path: Path) -> None:
    found = _captured(tmp_path, 8 * GB, busy=0.5).finding(SharedDevice())
    assert evidence(found, "share of GPU memory") == 0.1
    assert (found.saving.high_ns, found.claims.total_ns) == (0, 0)


@pytest.mark.parametrize("busy", [None, 0.5])
def test_a_desktop_without_gpu_time_is_clear(busy: float | None, tmp_path: Path) -> None:
    clear = _captured(tmp_path, 7.9 * GB, busy=busy).clear(SharedDevice())
    assert (clear.value, clear.limit) == (7.9 / 80, 0.1)


def test_little_memory_counts_if_others_use_gpu_time(tmp_path: Path) -> None:
    found = _captured(tmp_path, 1.6 * GB, busy=0.9).finding(SharedDevice())
    assert found.claims.total_ns == 50_000


def test_the_saving_is_at_most_the_gpu_time_of_others(tmp_path: Path) -> None:
    found = _captured(tmp_path, 8 * GB, busy=0.9).finding(SharedDevice())
    assert evidence(found, "GPU time of other processes") == pytest.approx(0.4)
    assert found.saving.high_ns == pytest.approx(0.4 * 50_000)


def test_an_idle_context_is_clear(tmp_path: Path) -> None:
    clear = _captured(tmp_path, 0.5 * GB, busy=0.9).clear(SharedDevice())
    assert (clear.value, clear.limit) == (0.5 / 80, 0.02)


def test_a_gpu_without_other_processes_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.0).clear(SharedDevice()).value == 0


def test_unknown_memory_owners_are_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, None).outcome(SharedDevice()), Skipped)


def test_without_gpu_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 2, kernel=(0, 100))
    assert "The GPU was not sampled" in skipped(SharedDevice(), builder, tmp_path)


@pytest.mark.parametrize(
    ("foreign_gb", "busy", "found"),
    [(1.6, 0.61, True), (1.59, 0.61, False), (1.6, 0.59, False), (8, 0.59, True), (7.9, 0.59, False)],
)
def test_memory_counts_from_2_percent_with_10_percent_of_gpu_time_otherwise_from_10_percent(
    foreign_gb: float, busy: float, tmp_path: Path, *, found: bool
) -> None:
    assert _captured(tmp_path, foreign_gb * GB, busy=busy).is_found(SharedDevice()) is found
