from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured
from tests.rules.judging import evidence
from traceadvisor.judging.engine import judge
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data010_loader_ceiling import LoaderCeiling


def _run(folder: Path, *, wait_us: float, workers: int) -> Captured:
    """Build eleven steps of 100 us without the data loader; the first never counts."""
    builder = TraceBuilder().step(0, 0, 100).loader(0, 2).op("aten::mm", 2, 100)
    return Captured(builder, folder).with_loader(worker_count=workers).with_steps([wait_us] * 11)


def test_a_data_loader_without_workers_shows_both_rates(tmp_path: Path) -> None:
    found = _run(tmp_path, wait_us=300, workers=0).finding(LoaderCeiling())
    assert evidence(found, "loading time per batch") == 300_000
    assert evidence(found, "model time per batch") == 100_000
    assert evidence(found, "batch rate of the data loader") == 1 / 3
    assert found.locations == (LOOP,)


def test_workers_that_delay_the_loop_set_its_pace(tmp_path: Path) -> None:
    found = _run(tmp_path, wait_us=60, workers=2).finding(LoaderCeiling())
    assert evidence(found, "loading time per batch") == 160_000
    assert evidence(found, "batch rate of the data loader") == 0.625


def test_a_data_loader_faster_than_the_model_is_clear(tmp_path: Path) -> None:
    outcome = _run(tmp_path, wait_us=50, workers=0).clear(LoaderCeiling())
    assert (outcome.value, outcome.limit, outcome.remark) == (2.0, 1.0, "one worker can hide the loading")


def test_hidden_loading_needs_two_more_runs(tmp_path: Path) -> None:
    outcome = _run(tmp_path, wait_us=20, workers=2).outcome(LoaderCeiling())
    assert isinstance(outcome, Skipped)
    assert "only iterates over the data loader" in outcome.reason
    assert "before loading is the limit" in outcome.reason


def test_where_the_cpu_runs_ahead_of_the_gpu_the_rate_of_the_model_is_unknown(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 500).op("aten::mm", 2, 100).launch(5, 10, kernel=(0, 500))
    captured = Captured(builder, tmp_path).with_loader(worker_count=2).with_steps([20] * 11)
    outcome = captured.outcome(LoaderCeiling())
    assert isinstance(outcome, Skipped)
    assert outcome.reason.startswith("The CPU ran ahead of the GPU")


def test_the_rule_is_an_umbrella_and_not_ranked(tmp_path: Path) -> None:
    judgement = judge(_run(tmp_path, wait_us=300, workers=0).facts(), (LoaderCeiling(),))
    assert judgement.findings == ()
    assert [finding.rule.id for finding in judgement.recording.umbrellas] == ["DATA010"]


@pytest.mark.parametrize(("wait_us", "is_judged"), [(33, False), (34, True)])
def test_workers_set_the_pace_from_a_quarter_of_the_step(wait_us: float, tmp_path: Path, *, is_judged: bool) -> None:
    outcome = _run(tmp_path, wait_us=wait_us, workers=2).outcome(LoaderCeiling())
    assert isinstance(outcome, Skipped) is not is_judged
