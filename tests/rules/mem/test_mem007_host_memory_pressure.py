from pathlib import Path

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.model.telemetry import Series, Telemetry
from traceadvisor.rules.mem.mem007_host_memory_pressure import HostMemoryPressure

GIB = 1 << 30


def _step() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 100)


def _captured(
    folder: Path, *, available: float | None = 0.5, group: float | None = None, swapped: float | None = 0.0
) -> Captured:
    """Build a run on a machine with 100 GiB and eight loader workers."""
    nothing = Series(np.empty(0, dtype=np.int64), {})
    telemetry = Telemetry("node7", (), nothing, nothing, 8, None, memory_bytes=100 * GIB)
    captured = Captured(_step(), folder).with_loader(worker_count=8, prefetch_factor=4).with_run(telemetry=telemetry)
    captured.with_node(least_available_memory_share=available, swap_growth_bytes=swapped)
    return captured.with_processes(peak_group_memory_share=group)


def test_nearly_full_cpu_memory_is_found_with_the_prefetched_batches(tmp_path: Path) -> None:
    found = _captured(tmp_path, available=0.05).finding(HostMemoryPressure())
    assert evidence(found, "CPU memory in use") == pytest.approx(0.95)
    assert evidence(found, "prefetched batches") == 32
    assert found.locations == (LOOP,)


def test_nearly_full_container_memory_is_found_on_an_empty_machine(tmp_path: Path) -> None:
    found = _captured(tmp_path, group=0.97).finding(HostMemoryPressure())
    assert evidence(found, "cgroup memory in use") == 0.97


def test_growing_swap_is_found(tmp_path: Path) -> None:
    assert evidence(_captured(tmp_path, swapped=2.0 * GIB).finding(HostMemoryPressure()), "growth of swap") == 2 * GIB


def test_enough_free_memory_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, group=0.7, swapped=0.5 * GIB).clear(HostMemoryPressure()).value == 0.7


def test_without_memory_figures_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, available=None).outcome(HostMemoryPressure()), Skipped)


def test_without_cpu_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "The CPU was not sampled" in skipped(HostMemoryPressure(), _step(), tmp_path)


@pytest.mark.parametrize(("group", "swapped_gib", "found"), [(0.9, 1, False), (0.91, 1, True), (0.9, 1.01, True)])
def test_the_limits_are_nine_tenths_of_the_memory_and_one_percent_of_swap(
    group: float, swapped_gib: float, tmp_path: Path, *, found: bool
) -> None:
    captured = _captured(tmp_path, group=group, swapped=swapped_gib * GIB)
    assert captured.is_found(HostMemoryPressure()) is found


def test_without_a_setting_each_worker_prefetches_two_batches(tmp_path: Path) -> None:
    captured = _captured(tmp_path, available=0.05).with_loader(prefetch_factor=None)
    assert evidence(captured.finding(HostMemoryPressure()), "prefetched batches") == 16
