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
    assert evidence(found, "data loader type") == SINGLE
    assert found.claims.total_ns == 40_000


def test_the_proposed_number_hides_the_loading_with_one_spare_worker(tmp_path: Path) -> None:
    # Loading takes 75 us and the rest 25 us: three workers hide the loading, and one is spare.
    change = finding(SynchronousLoader(), _step(75, SINGLE), tmp_path).fix.change
    assert change is not None
    assert "num_workers=4" in change


def test_a_data_loader_with_workers_is_clear_with_any_wait(tmp_path: Path) -> None:
    outcome = clear(SynchronousLoader(), _step(40, SEVERAL), tmp_path)
    assert outcome.remark == "the loader uses worker processes"


def test_a_loader_name_truncated_by_an_old_profiler_is_recognised(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIt", 0, 50)
    assert finding(SynchronousLoader(), builder.op("aten::mm", 50, 100), tmp_path).claims.total_ns == 50_000


def test_short_loading_is_clear(tmp_path: Path) -> None:
    assert clear(SynchronousLoader(), _step(3, SINGLE), tmp_path).remark is None


def test_without_loader_events_the_rule_is_skipped(tmp_path: Path) -> None:
    assert "No data loader events" in skipped(
        SynchronousLoader(), TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5), tmp_path
    )


@pytest.mark.parametrize(("wait_us", "found"), [(49, False), (50, True)])
def test_a_wait_counts_from_five_percent_of_the_step(wait_us: int, tmp_path: Path, *, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, wait_us, kind=SINGLE).op("aten::mm", wait_us, 1000)
    assert is_found(SynchronousLoader(), builder, tmp_path) is found


def test_at_most_three_functions_are_named(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1000).loader(0, 500, kind=SINGLE).op("aten::mm", 500, 1000)
    builder.python("train.py(1): main", 0, 1000).python("torch/utils/data/dataloader.py(720): __next__", 0, 500)
    for line in range(4):
        builder.python(f"data.py({line}): load", 100 * line, 100 * line + 90)
    found = finding(SynchronousLoader(), builder, tmp_path)
    assert len([row for row in found.evidence if "data.py" in row.label]) == 3


@pytest.mark.parametrize(("cores", "proposed"), [(3, 2), (8, 4)])
def test_proposed_workers_are_limited_by_free_cores(cores: int, proposed: int, tmp_path: Path) -> None:
    change = Captured(_step(75, SINGLE), tmp_path).cores(cores).finding(SynchronousLoader()).fix.change
    assert change is not None
    assert f"num_workers={proposed}," in change
