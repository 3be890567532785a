from __future__ import annotations

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.rules.captured import Captured
from tests.rules.judging import clear, evidence, finding, is_found, skipped
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


@pytest.mark.parametrize(("wait_us", "found"), [(49, False), (50, True)])
def test_a_wait_counts_from_five_percent_of_the_step(wait_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us, kind=SINGLE).op("aten::mm", wait_us, 1000)
    assert is_found(SynchronousLoader(), builder, tmp_path) is found


def test_three_lines_that_load_are_named_at_most(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, 500, kind=SINGLE).op("aten::mm", 500, 1000)
    builder.python("train.py(1): main", 0, 1000).python("torch/utils/data/dataloader.py(720): __next__", 0, 500)
    for line in range(4):
        builder.python(f"data.py({line}): load", 100 * line, 100 * line + 90)
    found = finding(SynchronousLoader(), builder, tmp_path)
    assert len([row for row in found.evidence if "data.py" in row.label]) == 3


@pytest.mark.parametrize(("cores", "proposed"), [(3, 2), (8, 4)])
def test_no_more_workers_are_proposed_than_cores_are_free(cores: int, proposed: int, tmp_path: Path) -> None:
    change = Captured(_step(75, SINGLE), tmp_path).cores(cores).finding(SynchronousLoader()).fix.change
    assert change is not None
    assert f"num_workers={proposed}," in change
