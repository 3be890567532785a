from dataclasses import replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured, waiting, workers
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data011_unbalanced_workers import WORKER, UnbalancedWorkers


def _captured(folder: Path, *cores: float, wait_us: float = 50) -> Captured:
    return Captured(waiting(wait_us), folder).sampled(busy_workers=workers(*cores))


def test_one_worker_with_most_of_the_work_is_found(tmp_path: Path) -> None:
    found = _captured(tmp_path, 0.9, 0.1, 0.1, 0.1).finding(UnbalancedWorkers())
    assert evidence(found, "busiest worker relative to the others") == pytest.approx(9.0)
    assert found.claims.total_ns == 50_000


@pytest.mark.parametrize("cores", [(0.9, 0.3), (0.3, 0.9), (0.9, 0.3, 0.3), (0.9, 0.3, 0.2, 0.4)])
def test_three_times_the_others_is_found_with_any_number_of_workers(cores: tuple[float, ...], tmp_path: Path) -> None:
    found = _captured(tmp_path, *cores).finding(UnbalancedWorkers())
    assert evidence(found, "busiest worker relative to the others") == pytest.approx(3.0)


def test_a_busy_worker_beside_an_idle_one_is_found(tmp_path: Path) -> None:
    found = _captured(tmp_path, 1.0, 0.0).finding(UnbalancedWorkers())
    assert evidence(found, "mean CPU cores used by the other workers") == 0
    assert not [row for row in found.evidence if row.label.startswith("busiest worker relative")]


def test_idle_workers_of_another_data_loader_do_not_count(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 0.9, 0.9, 0.0, 0.0)
    assert captured.loader(workers=2).clear(UnbalancedWorkers()).value == pytest.approx(1.0)


def test_workers_that_share_the_work_are_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.9, 0.5, 0.4).clear(UnbalancedWorkers()).value == pytest.approx(2.0)


def test_a_mostly_idle_busiest_worker_is_clear(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, 0.3, 0.01, 0.01, 0.01).clear(UnbalancedWorkers())
    assert (outcome.label, outcome.value) == ("CPU cores used by the busiest worker", 0.3)


def test_uneven_work_without_a_data_wait_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.9, 0.1, 0.1, 0.1, wait_us=2).clear(UnbalancedWorkers()).label == "data wait"


def test_other_child_processes_do_not_count(tmp_path: Path) -> None:
    first, second, other = workers(0.5, 0.4, 5.0)
    named = (replace(first, name=WORKER), replace(second, name=WORKER), replace(other, name="wandb-service"))
    captured = Captured(waiting(50), tmp_path).sampled(busy_workers=named)
    assert captured.clear(UnbalancedWorkers()).value == pytest.approx(0.5 / 0.4)


def test_with_a_single_worker_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, 0.9).outcome(UnbalancedWorkers()), Skipped)


def test_without_cpu_samples_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "The CPU was not sampled" in skipped(UnbalancedWorkers(), waiting(50), tmp_path)


@pytest.mark.parametrize(
    ("wait_us", "busiest", "other", "found"),
    [(5, 0.5, 0.2, True), (4.9, 0.5, 0.2, False), (5, 0.49, 0.1, False), (5, 0.5, 0.21, False)],
)
def test_the_limits_are_five_percent_data_wait_half_a_core_and_two_and_a_half_times_the_others(
    wait_us: float, busiest: float, other: float, tmp_path: Path, *, found: bool
) -> None:
    assert _captured(tmp_path, busiest, other, wait_us=wait_us).is_found(UnbalancedWorkers()) is found


@pytest.mark.parametrize(("slower_us", "found"), [(14, False), (16, True)])
def test_a_timed_worker_that_takes_longer_for_its_batches_is_found(
    slower_us: float, tmp_path: Path, *, found: bool
) -> None:
    # Workers take 10 us for a batch, one of them 24 or 26: the limit is two and a half times as long.
    captured = Captured(TraceBuilder().step(0, 0, 100).loader(0, 60).op("aten::mm", 60, 100), tmp_path)
    slow = dict.fromkeys(range(0, 40, 2), slower_us)
    captured = captured.loader(workers=2).made(0, 10, workers=[0, 1], slow=slow)
    assert captured.is_found(UnbalancedWorkers()) is found
    if found:
        assert evidence(captured.finding(UnbalancedWorkers()), "slowest worker relative") == pytest.approx(2.6)
