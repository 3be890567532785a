"""Ranks of a job whose files have one name: the files state their ranks."""

import shutil
from pathlib import Path

import pytest

from tests.build import TraceBuilder
from tests.shared import CHECKOUT
from traceadvisor import api
from traceadvisor.indexing.runs import separate_runs
from traceadvisor.parsing import beginning
from traceadvisor.parsing.discovery import find_recordings

TORCHTUNE = "r0-2026-3-4-5-6"
"""The worker name that every rank gets there."""


def _record(path: Path, rank: int | None = None, ranks: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    builder = TraceBuilder().step(0, 0, 10).op("aten::mm", 0, 5)
    return (builder if rank is None else builder.distributed(rank, ranks)).write(path)


def _found(*paths: Path) -> list[tuple[str, str, int]]:
    return [(one.worker, one.span, one.cycle) for one in find_recordings(paths).origins]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_ranks_with_one_name_are_workers_of_their_own(suffix: str, tmp_path: Path) -> None:
    paths = [_record(tmp_path / f"{TORCHTUNE}.{5 + rank}.pt.trace.json{suffix}", rank) for rank in (0, 1)]
    assert _found(tmp_path) == _found(*paths) == [("rank0", "5", 0), ("rank1", "6", 0)]


def test_spans_of_each_hidden_rank_are_numbered_in_order_of_time(tmp_path: Path) -> None:
    for span, rank in enumerate((1, 0, 0, 1)):
        _record(tmp_path / f"{TORCHTUNE}.{span}.pt.trace.json", rank)
    assert _found(tmp_path) == [("rank0", "1", 0), ("rank0", "2", 1), ("rank1", "0", 0), ("rank1", "3", 1)]


def test_a_name_with_another_minute_is_no_other_worker(tmp_path: Path) -> None:
    for minute, span, rank in ((58, 1, 0), (58, 2, 1), (59, 3, 2), (7, 4, 0), (7, 5, 2), (8, 6, 1)):
        _record(tmp_path / f"r0-2026-3-4-5-{minute}.{span}.pt.trace.json", rank, 3)
    _record(tmp_path / "other.7.pt.trace.json", 0)
    ranks = [(f"rank{rank}", span, cycle) for rank, cycle, span in ((0, 0, "1"), (0, 1, "4"), (1, 0, "2"), (1, 1, "6"))]
    assert _found(tmp_path) == [("other", "7", 0), *ranks, ("rank2", "3", 0), ("rank2", "5", 1)]


def test_a_rank_counts_without_the_size_of_its_job(tmp_path: Path) -> None:
    for rank in (0, 3):
        builder = TraceBuilder().step(0, 0, 10).op("aten::mm", 0, 5).member("distributedInfo", {"rank": rank})
        builder.write(tmp_path / f"w.{rank}.pt.trace.json")
    assert [worker for worker, _, _ in _found(tmp_path)] == ["rank0", "rank3"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_recordings_of_one_rank_keep_the_name_of_their_worker(ranks: int, tmp_path: Path) -> None:
    for span in (5, 6):
        _record(tmp_path / f"w.{span}.pt.trace.json", 0, ranks)
    assert _found(tmp_path) == [("w", "5", 0), ("w", "6", 1)]


def test_a_recording_that_states_no_rank_keeps_its_name_beside_others_that_do(tmp_path: Path) -> None:
    for span, rank in enumerate((None, 0, 1)):
        _record(tmp_path / f"w.{span}.pt.trace.json", rank)
    (tmp_path / "w.3.pt.trace.json").write_text("no recording")
    assert _found(tmp_path) == [("rank0", "1", 0), ("rank1", "2", 0), ("w", "0", 0), ("w", "3", 1)]


def test_no_file_is_opened_to_list_workers_with_a_recording_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(100):
        _record(tmp_path / f"host_{rank}.1.pt.trace.json", rank, 100)
    monkeypatch.setattr(beginning, "open_bytes", lambda path: pytest.fail(f"{path} is opened"))
    assert len(_found(tmp_path)) == 100


def test_listing_again_opens_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    first_bytes = beginning.first_bytes

    def watched(path: Path) -> bytes | None:
        opened.append(path.name)
        return first_bytes(path)

    monkeypatch.setattr(beginning, "first_bytes", watched)
    for span in range(10):
        _record(tmp_path / f"w.{span}.pt.trace.json", 0)
    assert len({worker for worker, _, _ in _found(tmp_path)}) == 1
    assert len(opened) == 10
    _record(tmp_path / "w.10.pt.trace.json", 1)
    assert len({worker for worker, _, _ in _found(tmp_path)}) == 2
    assert opened[10:] == ["w.10.pt.trace.json"]


def test_the_newest_recording_of_each_hidden_rank_is_reported(tmp_path: Path) -> None:
    paths = [_record(tmp_path / f"w.{span}.pt.trace.json", span % 2) for span in range(4)]
    assert sorted(api.newest_recordings(tmp_path)) == paths[2:]


def test_hidden_ranks_of_a_job_are_one_run_of_the_index(tmp_path: Path) -> None:
    for rank in range(3):
        _record(tmp_path / "log" / f"{TORCHTUNE}.{1_700_000_000_000 + rank}.pt.trace.json", rank, 3)
    assert [len(run.origins) for run in separate_runs([tmp_path / "log"])] == [3]


def test_the_late_rank_is_found_whatever_the_names(tmp_path: Path) -> None:
    """A recorded job of two ranks, one of which is late, under names as torchtune gives them."""
    recordings = sorted((CHECKOUT / "sample_traces/two-ranks").glob("*.pt.trace.json.gz"))
    for number, path in enumerate(recordings):
        shutil.copy(path, tmp_path / f"{TORCHTUNE}.177260000000000000{number}.pt.trace.json.gz")
    report = api.load(tmp_path)
    assert [(one.worker, one.cycle) for one in report.recordings] == [("rank0", 0), ("rank1", 0)]
    assert "DIST005" in [row.finding.rule.id for row in report.findings]
