from pathlib import Path

import pytest

from tests.analysis.data.loader_stacks import ASLEEP, IN_LOCK
from tests.analysis.sampled.sampling import Samples
from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence, skipped
from traceadvisor.model.run import TimedBatch
from traceadvisor.rules.data.data003_worker_count import WorkerCount
from traceadvisor.rules.data.data012_loader_line import LoaderLineCost
from traceadvisor.rules.data.data016_lock_between_workers import LockBetweenWorkers

MS = 1_000_000


def _captured(folder: Path, *, locked: int = 75, asleep: int = 25, workers: int = 4) -> Captured:
    """Batches that wait 100 ms, so many samples of it in a lock; the loop waits 20 ms for each, and works for 5."""
    builder = TraceBuilder().step(0, 0, 25_000).loader(0, 20_000).op("aten::mm", 20_000, 25_000)
    samples = Samples().add(locked, *IN_LOCK, is_fetching=True, is_waiting=True)
    samples.add(asleep, *ASLEEP, is_fetching=True, is_waiting=True)
    captured = Captured(builder, folder).with_loader(worker_count=workers, sampler="SequentialSampler")
    captured.with_steps([20_000.0] * 40, step_us=5_000)
    batches = tuple(
        TimedBatch(n % workers, 10**18 + (25 * n - 81) * MS, 100 * MS, 0, 0, 0, 0, 0)  # ends 19 ms after a fetch began
        for n in range(40)
    )
    return captured.with_run(loader_stacks=samples.build(), batches=batches)


def test_workers_that_wait_for_a_lock_are_found(tmp_path: Path) -> None:
    found = _captured(tmp_path).finding(LockBetweenWorkers())
    assert evidence(found, "share of a batch waiting for a lock") == pytest.approx(0.75)
    assert found.saving.high_ns == pytest.approx(0.75 * 25_000_000)
    assert found.saving.low_ns == 0  # how much of the work behind the lock may run in parallel is unknown


def test_more_workers_are_not_proposed_for_it(tmp_path: Path) -> None:
    captured = _captured(tmp_path)
    remark = captured.clear(WorkerCount()).remark
    assert remark == "workers wait for a lock that one of them holds, and more workers would, too"
    assert captured.clear(LoaderLineCost()).remark == "workers wait for a lock that one of them holds"


@pytest.mark.parametrize(("locked", "found"), [(19, False), (21, True)])
def test_a_lock_counts_from_a_fifth_of_a_batch(locked: int, tmp_path: Path, *, found: bool) -> None:
    assert _captured(tmp_path, locked=locked, asleep=100 - locked).is_found(LockBetweenWorkers()) is found


def test_workers_that_only_sleep_get_more_workers(tmp_path: Path) -> None:
    captured = _captured(tmp_path, locked=0, asleep=100)
    assert not captured.is_found(LockBetweenWorkers())
    assert captured.is_found(WorkerCount())


def test_a_single_worker_waits_for_no_other(tmp_path: Path) -> None:
    assert not _captured(tmp_path, workers=1).is_found(LockBetweenWorkers())


def test_without_a_capture_the_rule_is_skipped(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).loader(0, 50)
    assert "traceadvisor capture" in skipped(LockBetweenWorkers(), builder, tmp_path)
