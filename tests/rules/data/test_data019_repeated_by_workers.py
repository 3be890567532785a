from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Method, Skipped
from traceadvisor.rules.data.data019_repeated_by_workers import RepeatedByWorkers


def _captured(folder: Path, share: float | None, workers: int = 3) -> Captured:
    builder = TraceBuilder()
    for at in builder.steps(4, 100):
        builder.loader(at, at + 5).op("aten::mm", at + 10, at + 90)
    return Captured(builder, folder).with_loader(worker_count=workers).with_settings(repeated_share=share)


@pytest.mark.parametrize(("share", "is_found"), [(0.49, False), (0.5, True), (1.0, True)])
def test_workers_that_return_the_same_rows_are_found_from_half_of_them(
    share: float, tmp_path: Path, *, is_found: bool
) -> None:
    assert _captured(tmp_path, share).is_found(RepeatedByWorkers()) is is_found


def test_the_saving_is_a_share_of_the_training_time_and_no_time_of_a_step(tmp_path: Path) -> None:
    found = _captured(tmp_path, 1.0).with_steps([0.0] * 30, begun={0: 5, 15: 5}).finding(RepeatedByWorkers())
    assert found.of_run
    assert found.saving.method is Method.BOUND
    assert not found.claims
    assert evidence(found, "times each sample is trained on") == 3


def test_a_stream_that_never_began_anew_saves_no_time(tmp_path: Path) -> None:
    found = _captured(tmp_path, 1.0).with_steps([0.0] * 30, begun={0: 5}).finding(RepeatedByWorkers())
    assert found.saving.high_ns == 0


def test_workers_that_divide_the_data_are_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, 0.0).clear(RepeatedByWorkers()).value == 0


def test_without_compared_rows_it_is_skipped(tmp_path: Path) -> None:
    outcome = _captured(tmp_path, None).outcome(RepeatedByWorkers())
    assert isinstance(outcome, Skipped)
    assert "compared" in outcome.reason
