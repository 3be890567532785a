from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import LOOP, Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data007_worker_restart import WorkerRestart


def _step() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).loader(0, 2).op("aten::mm", 2, 100)


def _captured(
    folder: Path, *, epochs: int = 3, begun_us: float = 300, builder: TraceBuilder | None = None, **loader: object
) -> Captured:
    """Build epochs of ten steps of 100 us. The first batch of each takes 100 us, the others take no time."""
    waits = [100.0 if number % 10 == 0 else 0.0 for number in range(10 * epochs)]
    begun = {10 * epoch: begun_us for epoch in range(epochs)}
    loader = {"worker_count": 2, "persistent_workers": False, **loader}
    return Captured(builder or _step(), folder).with_loader(**loader).with_steps(waits, begun=begun)


def test_workers_restarted_in_each_epoch_are_found(tmp_path: Path) -> None:
    found = _captured(tmp_path).finding(WorkerRestart())
    assert evidence(found, "time to start the workers") == 300_000
    assert evidence(found, "extra time of the first batch") == 100_000
    # An epoch start takes 400 us for ten steps of 100 us: 40 us per step.
    assert found.saving.high_ns == pytest.approx(40_000)
    assert found.whole_ns == pytest.approx(140_000)
    assert found.fix.change == "DataLoader(dataset, num_workers=2, persistent_workers=True)  # keep the other arguments"
    assert found.locations == (LOOP,)


def test_kept_workers_are_clear(tmp_path: Path) -> None:
    assert (
        _captured(tmp_path, persistent_workers=True).clear(WorkerRestart()).remark == "workers are kept between epochs"
    )


def test_short_epoch_starts_are_clear(tmp_path: Path) -> None:
    captured = _captured(tmp_path, begun_us=1)
    captured.with_steps([0.0] * 30, begun={0: 1, 10: 1, 20: 1})
    assert captured.clear(WorkerRestart()).value == pytest.approx(0.001, rel=0.01)


def test_with_a_single_epoch_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, epochs=1).outcome(WorkerRestart()), Skipped)


def test_where_the_cpu_runs_ahead_of_the_gpu_epoch_starts_may_be_hidden(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 500).op("aten::mm", 2, 100).launch(5, 10, kernel=(0, 500))
    outcome = _captured(tmp_path, builder=builder).outcome(WorkerRestart())
    assert isinstance(outcome, Skipped)
    assert outcome.reason.startswith("The CPU ran ahead of the GPU")


def test_without_workers_the_rule_is_skipped(tmp_path: Path) -> None:
    assert isinstance(_captured(tmp_path, worker_count=0).outcome(WorkerRestart()), Skipped)


def test_without_settings_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "traceadvisor capture" in skipped(WorkerRestart(), _step(), tmp_path)


@pytest.mark.parametrize(("begun_us", "found"), [(9.9, False), (10.2, True)])
def test_epoch_starts_count_from_one_percent_of_the_training_time(
    begun_us: float, tmp_path: Path, *, found: bool
) -> None:
    # Ten steps of 100 us take 1,000 us, with a start within the first of them: 1% is 10 us.
    captured = _captured(tmp_path).with_steps([0.0] * 30, begun={0: begun_us, 10: begun_us, 20: begun_us})
    assert captured.is_found(WorkerRestart()) is found
