from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured, workers
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data011_unbalanced_workers import WORKER, UnbalancedWorkers


def _waiting(wait_us: float = 50) -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).loader(0, wait_us).op("aten::mm", wait_us, 100)


def _captured(folder: Path, *cores: float, wait_us: float = 50) -> Captured:
    return Captured(_waiting(wait_us), folder).sampled(busy_workers=workers(*cores))


def test_one_worker_with_the_work_of_all_is_found(tmp_path: Path) -> None:
    found = _captured(tmp_path, 0.9, 0.1, 0.1, 0.1).finding(UnbalancedWorkers())
    assert evidence(found, "busiest worker over the mean of the others") == pytest.approx(9.0)
    assert found.claims.total_ns == 50_000


@pytest.mark.parametrize("cores", [(0.9, 0.3), (0.3, 0.9), (0.9, 0.3, 0.3), (0.9, 0.3, 0.2, 0.4)])
def test_three_times_the_others_is_found_however_many_they_are(cores: tuple[float, ...], tmp_path: Path) -> None:
    found = _captured(tmp_path, *cores).finding(UnbalancedWorkers())
    assert evidence(found, "busiest worker over the mean of the others") == pytest.approx(3.0)


def test_a_worker_beside_one_that_does_nothing_is_found(tmp_path: Path) -> None:
    found = _captured(tmp_path, 1.0, 0.0).finding(UnbalancedWorkers())
    assert evidence(found, "mean of the others") == 0
    assert not [row for row in found.evidence if row.label.startswith("busiest worker over")]


def test_idle_workers_of_another_loader_do_not_count(tmp_path: Path) -> None:
    captured = _captured(tmp_path, 0.9, 0.9, 0.0, 0.0)
    assert captured.loader(workers=2).clear(UnbalancedWorkers()).value == pytest.approx(1.0)


def test_workers_that_share_the_work_are_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.9, 0.5, 0.4).clear(UnbalancedWorkers()).value == pytest.approx(2.0)


def test_a_busiest_worker_that_is_mostly_idle_is_clear(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, 0.3, 0.01, 0.01, 0.01).clear(UnbalancedWorkers())
    assert (outcome.label, outcome.value) == ("cores that the busiest worker keeps busy", 0.3)


def test_an_uneven_share_that_keeps_nobody_waiting_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.9, 0.1, 0.1, 0.1, wait_us=2).clear(UnbalancedWorkers()).label == "exposed data wait"


def test_children_that_are_no_workers_do_not_count(tmp_path: Path) -> None:
    first, second, other = workers(0.5, 0.4, 5.0)
    named = (replace(first, name=WORKER), replace(second, name=WORKER), replace(other, name="wandb-service"))
    captured = Captured(_waiting(), tmp_path).sampled(busy_workers=named)
    assert captured.clear(UnbalancedWorkers()).value == pytest.approx(0.5 / 0.4)


def test_a_single_worker_has_no_one_to_share_with(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, 0.9).outcome(UnbalancedWorkers()), Skipped)


def test_without_samples_of_the_host_the_rule_cannot_look(tmp_path: Path) -> None:
    assert "The CPU was not sampled" in skipped(UnbalancedWorkers(), _waiting(), tmp_path)


@pytest.mark.parametrize(
    ("wait_us", "busiest", "other", "found"),
    [(5, 0.5, 0.2, True), (4.9, 0.5, 0.2, False), (5, 0.49, 0.1, False), (5, 0.5, 0.21, False)],
)
def test_it_takes_five_percent_of_waiting_half_a_core_and_two_and_a_half_times_the_others(
    wait_us: float, busiest: float, other: float, tmp_path: Path, *, found: bool
) -> None:
    assert _captured(tmp_path, busiest, other, wait_us=wait_us).is_found(UnbalancedWorkers()) is found
