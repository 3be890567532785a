from __future__ import annotations

from pathlib import Path

from tests.build import TraceBuilder
from tests.rules.judging import clear, evidence, finding, skipped
from traceadvisor.rules.data.data002_synchronous_loader import SynchronousLoader

SINGLE = "_SingleProcessDataLoaderIter"
SEVERAL = "_MultiProcessingDataLoaderIter"


def _step(wait_us: int, kind: str) -> TraceBuilder:
    builder = TraceBuilder().step(0, 0, 100).loader(0, wait_us, kind=kind).op("aten::mm", wait_us, wait_us + 2)
    return builder.launch(wait_us, wait_us + 1, kernel=(wait_us, 100))


def test_loading_in_the_training_process_is_found(tmp_path: Path) -> None:
    found = finding(SynchronousLoader(), _step(40, SINGLE), tmp_path)
    assert evidence(found, "loader") == SINGLE
    assert found.claims.total_ns == 40_000


def test_as_many_workers_are_proposed_as_hide_the_loading_and_one_to_spare(tmp_path: Path) -> None:
    # 75 us of loading against 25 us of everything else: three batches in flight hide it, a fourth is to spare.
    change = finding(SynchronousLoader(), _step(75, SINGLE), tmp_path).fix.change
    assert change is not None
    assert "num_workers=4" in change


def test_a_loader_with_workers_is_clear_however_long_the_wait(tmp_path: Path) -> None:
    outcome = clear(SynchronousLoader(), _step(40, SEVERAL), tmp_path)
    assert outcome.remark == "the loader uses worker processes"


def test_a_loader_name_cut_short_by_an_old_profiler_is_understood(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIt", 0, 50)
    assert finding(SynchronousLoader(), builder.op("aten::mm", 50, 100), tmp_path).claims.total_ns == 50_000


def test_loading_that_costs_little_is_clear(tmp_path: Path) -> None:
    assert clear(SynchronousLoader(), _step(3, SINGLE), tmp_path).remark is None


def test_without_loader_events_the_rule_cannot_look(tmp_path: Path) -> None:
    assert "No data loader events" in skipped(
        SynchronousLoader(), TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5), tmp_path
    )
