from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured, waiting, workers
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data004_cpu_bound_preprocessing import CpuBoundPreprocessing


@pytest.mark.parametrize(("cpu", "granted"), [(0.95, 0.3), (0.3, 0.95)])
def test_a_wait_with_busy_cores_is_found(cpu: float, granted: float, tmp_path: Path) -> None:
    found = Captured(waiting(60), tmp_path).sampled(cpu=cpu, granted=granted).finding(CpuBoundPreprocessing())
    assert evidence(found, "granted CPU time in use") == 0.95
    assert found.claims.total_ns == 60_000


def test_a_wait_with_free_cores_is_clear(tmp_path: Path) -> None:
    outcome = Captured(waiting(60), tmp_path).sampled(cpu=0.5, granted=0.4).clear(CpuBoundPreprocessing())
    assert (outcome.value, outcome.remark) == (0.5, "CPU cores are free for loading")


def test_busy_cores_without_a_wait_are_clear(tmp_path: Path) -> None:
    outcome = Captured(waiting(2), tmp_path).sampled(cpu=1.0).clear(CpuBoundPreprocessing())
    assert outcome.label == "data wait"


def test_without_cpu_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "The CPU was not sampled" in skipped(CpuBoundPreprocessing(), waiting(60), tmp_path)


def test_loading_in_the_training_process_is_left_to_data002(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 60, kind="_SingleProcessDataLoaderIter").op("aten::mm", 60, 100)
    outcome = Captured(builder, tmp_path).sampled(cpu=0.95).outcome(CpuBoundPreprocessing())
    assert isinstance(outcome, Skipped)
    assert "DATA002" in outcome.reason


def test_a_cpu_kept_busy_by_other_programs_is_clear(tmp_path: Path) -> None:
    captured = Captured(waiting(60), tmp_path).sampled(cpu=0.99, busy_workers=workers(0.05, 0.05))
    assert captured.clear(CpuBoundPreprocessing()).remark == "the loader workers are mostly idle"


@pytest.mark.parametrize(
    ("wait_us", "cpu", "cores", "found"),
    [
        (50, 0.9, 0.8, True),
        (49, 0.9, 0.8, False),
        (50, 0.89, 0.8, False),
        (50, 0.9, 0.79, False),
    ],
)
def test_the_limits_are_five_percent_data_wait_ninety_percent_cpu_time_and_four_fifths_of_a_core(
    wait_us: int, cpu: float, cores: float, tmp_path: Path, *, found: bool
) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us).op("aten::mm", wait_us, 1000)
    captured = Captured(builder, tmp_path).sampled(cpu=cpu, busy_workers=workers(cores))
    assert captured.is_found(CpuBoundPreprocessing()) is found
