from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import evidence
from traceadvisor.model.findings import Skipped
from traceadvisor.rules.data.data018_slow_batch_blocks import SlowBatchBlocks

SLOW = dict.fromkeys(range(0, 200, 8), 120000.0)


def _captured(
    folder: Path, *, slow: dict[int, float] | None = None, wait_us: float = 12_000, **loader: object
) -> Captured:
    """Batches of 12 ms by three workers, every eighth of 132; the loop works for 5 ms and waits for 15."""
    builder = TraceBuilder().step(0, 0, 20_000).loader(0, 15_000).op("aten::mm", 15_000, 20_000)
    captured = Captured(builder, folder).with_loader(worker_count=3, **loader).with_settings(torch_version="2.13.0+cpu")
    captured.with_steps([15_000.0] * 40, step_us=5_000)
    return captured.made(wait_us=wait_us, count=200, slow=SLOW if slow is None else slow, workers=(0, 1, 2))


def test_a_slow_batch_that_blocks_finished_ones_is_found(tmp_path: Path) -> None:
    found = _captured(tmp_path, in_order=True).finding(SlowBatchBlocks())
    assert found.fix.settings == {"num_workers": 3, "in_order": False}
    # The mean batch takes 27 ms: three workers make one in 9, and the loop works for 5 of these.
    assert evidence(found, "simulated wait, in any order") == pytest.approx(4_000_000, rel=0.2)
    assert float(evidence(found, "simulated wait, in order")) > 10_000_000
    assert found.saving.expected_ns > 6_000_000


def test_equal_batches_block_nothing(tmp_path: Path) -> None:
    assert _captured(tmp_path, slow={}, wait_us=60_000).clear(SlowBatchBlocks()).value < 0.05


def test_a_batch_that_each_worker_makes_slowly_once_is_no_finding(tmp_path: Path) -> None:
    once = dict.fromkeys((90, 93, 95), 2_000_000.0)
    assert _captured(tmp_path, slow=once, wait_us=10_000).clear(SlowBatchBlocks()).value < 0.05


def test_the_wait_of_the_mean_step_counts_where_most_steps_wait_for_no_slow_batch(tmp_path: Path) -> None:
    captured = _captured(tmp_path, in_order=True)
    captured.with_steps([1_000.0] * 35 + [113_000.0] * 5, step_us=5_000)
    found = captured.finding(SlowBatchBlocks())
    step_ns = 6_000_000  # the median; in order, the loop waits for 14 of 19 ms, and else for 4
    assert found.saving.expected_ns / step_ns == pytest.approx(0.53, abs=0.1)
    assert found.saving.high_ns / step_ns == pytest.approx(0.74, abs=0.02)


def test_a_loader_without_order_is_clear(tmp_path: Path) -> None:
    assert _captured(tmp_path, in_order=False).clear(SlowBatchBlocks()).remark == "batches come in any order"


def test_before_torch_2_6_there_is_no_such_setting(tmp_path: Path) -> None:
    captured = _captured(tmp_path).with_settings(torch_version="2.5.1")
    assert isinstance(captured.outcome(SlowBatchBlocks()), Skipped)


def test_without_times_of_batches_the_rule_is_skipped(tmp_path: Path) -> None:
    outcome = _captured(tmp_path).with_run(batches=()).outcome(SlowBatchBlocks())
    assert isinstance(outcome, Skipped)
