"""Recordings that are not those of a run's ranks, once each and of the same moment, are told apart."""

from pathlib import Path

import pytest

from tests.build import TraceBuilder
from traceadvisor import load
from traceadvisor.model.findings import Skipped
from traceadvisor.model.report import Report

NOON_NS = 1_800_000_000_000_000_000


def record(path: Path, rank: int, world_size: int = 2, *, base_ns: int | None = NOON_NS, devices: int = 1) -> Path:
    """Three steps of 100 us of one rank, with an all-reduce in each."""
    builder = TraceBuilder().distributed(rank, world_size)
    if base_ns is not None:
        builder.base_time(base_ns)
    for at in builder.steps(3, 100):
        builder.loader(at, at + 5).op("aten::mm", at + 5, at + 50)
        for device in range(devices):
            builder.launch(at + 10, at + 11, kernel=(at + 12, at + 60), device=device)
            builder.collective(at + 20, at + 21, kernel=(at + 60, at + 90), device=device)
    return builder.write(path)


def notes(report: Report) -> dict[str, str]:
    return {row.note.code: row.note.message for row in report.health_notes if row.recording_id is None}


def test_all_ranks_once_each_are_no_note(tmp_path: Path) -> None:
    for rank in range(2):
        record(tmp_path / f"rank-{rank}.1.pt.trace.json", rank)
    assert notes(load(tmp_path)) == {}


def test_missing_ranks_are_reported(tmp_path: Path) -> None:
    for rank in (0, 3):
        record(tmp_path / "run" / f"rank-{rank}.1.pt.trace.json", rank, world_size=4)
    assert notes(load(tmp_path)) == {
        "ranks-missing": "Only ranks 0, 3 of 4 were recorded in run: what the other ranks do meanwhile is unknown."
    }


def test_missing_ranks_do_not_lower_the_confidence_in_recorded_ones(tmp_path: Path) -> None:
    report = load(record(tmp_path / "rank-0.1.pt.trace.json", 0))
    assert [row.note.degrades for row in report.health_notes if row.note.code == "ranks-missing"] == [False]


def test_a_repeated_rank_is_reported_and_only_the_first_is_compared(tmp_path: Path) -> None:
    for name, rank in (("rank-0", 0), ("rank-1", 1), ("rank-1-copy", 1)):
        record(tmp_path / f"{name}.1.pt.trace.json", rank)
    report = load(tmp_path)
    assert "(rank-1.1.pt.trace.json, rank-1-copy.1.pt.trace.json)" in notes(report)["rank-repeated"]
    assert sorted(len(row.recording_ids) for row in report.outcomes if row.rule_id == "DIST005") == [1, 2]


@pytest.mark.nightly("traceadvisor/analysis/communication")
def test_a_rank_that_recorded_twice_in_a_row_is_not_there_twice(tmp_path: Path) -> None:
    for rank in range(2):
        for span in (1, 2):
            record(tmp_path / f"rank-{rank}.{span}.pt.trace.json", rank, base_ns=NOON_NS + span)
    assert notes(load(tmp_path)) == {}


def test_a_rank_with_two_devices_is_there_once(tmp_path: Path) -> None:
    for rank in range(2):
        record(tmp_path / f"rank-{rank}.1.pt.trace.json", rank, devices=2)
    assert notes(load(tmp_path)) == {}


def test_different_jobs_in_one_folder_are_reported_and_not_compared(tmp_path: Path) -> None:
    record(tmp_path / "run" / "a.1.pt.trace.json", 0, world_size=1)
    record(tmp_path / "run" / "b.1.pt.trace.json", 1, world_size=8)
    report = load(tmp_path)
    assert "of run come from jobs with 1, 8 processes" in notes(report)["different-jobs"]
    (straggler,) = (row.outcome for row in report.outcomes if row.rule_id == "DIST005")
    assert isinstance(straggler, Skipped)


def test_runs_in_separate_folders_are_separate(tmp_path: Path) -> None:
    for run, world_size in (("small", 1), ("large", 2)):
        for rank in range(world_size):
            record(tmp_path / run / f"rank-{rank}.1.pt.trace.json", rank, world_size)
    assert notes(load(tmp_path)) == {}


@pytest.mark.parametrize(
    ("base_ns", "said"),
    [
        (NOON_NS + 10 * 10**9, "of run are 10.0 s apart and do not overlap"),
        (None, "It is unknown when ranks 1 of run were recorded"),
    ],
)
def test_ranks_with_different_base_times_are_reported_as_not_aligned(
    base_ns: int | None, said: str, tmp_path: Path
) -> None:
    record(tmp_path / "run" / "rank-0.1.pt.trace.json", 0)
    record(tmp_path / "run" / "rank-1.1.pt.trace.json", 1, base_ns=base_ns)
    assert said in notes(load(tmp_path))["not-aligned"]


@pytest.mark.nightly("traceadvisor/analysis/communication")
def test_base_times_that_differ_by_less_than_the_recording_are_aligned(tmp_path: Path) -> None:
    record(tmp_path / "rank-0.1.pt.trace.json", 0)
    record(tmp_path / "rank-1.1.pt.trace.json", 1, base_ns=NOON_NS + 100_000)
    assert notes(load(tmp_path)) == {}


def test_recordings_without_a_rank_get_no_note(tmp_path: Path) -> None:
    for name in ("a", "b"):
        TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 50).write(tmp_path / f"{name}.1.pt.trace.json")
    assert notes(load(tmp_path)) == {}


@pytest.mark.nightly("traceadvisor/analysis/communication")
@pytest.mark.parametrize(
    ("count", "listed"),
    [(8, "ranks 0, 1, 2, 3, 4, 5, 6, 7 of 32 were"), (9, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 1 more of 32 were")],
)
def test_eight_ranks_are_named_at_most(count: int, listed: str, tmp_path: Path) -> None:
    for rank in range(count):
        record(tmp_path / f"rank-{rank}.1.pt.trace.json", rank, world_size=32)
    assert listed in notes(load(tmp_path))["ranks-missing"]
