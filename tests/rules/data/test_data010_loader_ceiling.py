from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.judging.engine import judge
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data010_loader_ceiling import LoaderCeiling


def _run(folder: Path, *, wait_us: float, workers: int) -> Captured:
    """Eleven steps that take 100 us beside the loader; the first counts nowhere."""
    builder = TraceBuilder().step(0, 0, 100).loader(0, 2).op("aten::mm", 2, 100)
    return Captured(builder, folder).with_loader(worker_count=workers).with_steps([wait_us] * 11)


def test_a_loader_that_takes_turns_with_the_model_shows_both_rates(tmp_path: Path) -> None:
    found = _run(tmp_path, wait_us=300, workers=0).finding(LoaderCeiling())
    assert evidence(found, "a batch from the loader") == 300_000
    assert evidence(found, "a batch takes the model") == 100_000
    assert evidence(found, "the loader's rate") == 1 / 3
    assert found.locations == (LOOP,)


def test_workers_that_keep_the_loop_waiting_set_its_pace(tmp_path: Path) -> None:
    found = _run(tmp_path, wait_us=60, workers=2).finding(LoaderCeiling())
    assert evidence(found, "a batch from the loader") == 160_000
    assert evidence(found, "the loader's rate") == 0.625


def test_a_loader_faster_than_the_model_is_left_alone(tmp_path: Path) -> None:
    outcome = _run(tmp_path, wait_us=50, workers=0).clear(LoaderCeiling())
    assert (outcome.value, outcome.limit, outcome.remark) == (2.0, 1.0, "one worker can hide the loading")


def test_where_loading_is_hidden_a_second_run_is_recommended_with_what_it_decides(tmp_path: Path) -> None:
    outcome = _run(tmp_path, wait_us=20, workers=2).outcome(LoaderCeiling())
    assert isinstance(outcome, Skipped)
    assert "one that only iterates over the loader" in outcome.reason
    assert "before the loader is the limit" in outcome.reason


def test_it_is_a_verdict_on_the_whole_and_no_finding(tmp_path: Path) -> None:
    judgement = judge(_run(tmp_path, wait_us=300, workers=0).facts(), (LoaderCeiling(),))
    assert judgement.findings == ()
    assert [finding.rule.id for finding in judgement.recording.umbrellas] == ["DATA010"]


def test_without_settings_the_rule_cannot_look(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 2).op("aten::mm", 2, 100)
    assert "traceadvisor capture" in skipped(LoaderCeiling(), builder, tmp_path)


@pytest.mark.parametrize(("wait_us", "is_told"), [(33, False), (34, True)])
def test_workers_set_the_pace_from_a_quarter_of_the_step_on(wait_us: float, tmp_path: Path, *, is_told: bool) -> None:
    outcome = _run(tmp_path, wait_us=wait_us, workers=2).outcome(LoaderCeiling())
    assert isinstance(outcome, Skipped) is not is_told
