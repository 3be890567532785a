"""Captures of one job on several nodes."""

import json
from pathlib import Path

import pytest

from traceadvisor.api import load
from traceadvisor.bundle.layout import FORMAT
from traceadvisor.model.report import Report

STEPS = "step,start_ns,duration_ns,loader_ns,fetches,state\n" + "".join(
    f"{number},{10**18 + number * 100_000},100000,40000,1,plain\n" for number in range(9)
)


def capture_of(folder: Path, *ranks: int, job: str | None, world_size: int = 4) -> Path:
    folder.mkdir(parents=True)
    for rank in ranks:
        (folder / f"steps.{rank}.csv").write_text(STEPS)
    content = {
        "format": FORMAT,
        "tool_version": "0.1.0",
        "started_ns": 10**18,
        "command": ["train.py"],
        "schedule": {"skip_first": 5, "wait": 5, "warmup": 3, "active": 8, "repeat": 1},
        "world_size": world_size,
        "files": [{"path": f"steps.{rank}.csv", "kind": "steps", "rank": rank, "host": folder.name} for rank in ranks],
        "job": job,
    }
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder


def runs(report: Report) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in report.recordings:
        found.setdefault(one.run, []).append(one.worker)
    return found


def message(report: Report, code: str) -> str:
    (found,) = (row.note.message for row in report.health_notes if row.note.code == code)
    return found


@pytest.mark.parametrize("as_parent", [True, False], ids=["their parent", "the folders"])
def test_captures_of_one_job_are_one_run(tmp_path: Path, as_parent: bool) -> None:  # noqa: FBT001
    first = capture_of(tmp_path / "a", 0, 1, job="slurm-7 0#ab")
    second = capture_of(tmp_path / "b", 2, 3, job="slurm-7 0#ab")
    report = load(tmp_path) if as_parent else load(second, first)
    assert runs(report) == {"a": ["rank0", "rank1", "rank2", "rank3"]}
    said = message(report, "job-joined")
    assert said == "2 captures are parts of one run on several nodes: a (ranks 0, 1), b (ranks 2, 3)."
    assert {one.captured.settings.ranks_on_host for one in report.recordings if one.captured} == {2}


def test_ranks_that_no_node_captured_are_named(tmp_path: Path) -> None:
    capture_of(tmp_path / "a", 0, 1, job="x")
    capture_of(tmp_path / "b", 4, job="x", world_size=6)
    assert message(load(tmp_path), "job-joined").endswith("No capture holds ranks 2, 3, 5 of 6.")


def test_captures_with_a_rank_in_common_stay_apart(tmp_path: Path) -> None:
    capture_of(tmp_path / "a", 0, 1, job="x")
    capture_of(tmp_path / "b", 1, 2, job="x")
    report = load(tmp_path)
    assert runs(report) == {"a": ["rank0", "rank1"], "b": ["rank1", "rank2"]}
    assert "because several hold rank 1: a, b." in message(report, "job-twice")


@pytest.mark.parametrize("jobs", [("x", "y"), (None, None)])
def test_captures_of_different_or_unknown_jobs_stay_apart(tmp_path: Path, jobs: tuple[str | None, str | None]) -> None:
    capture_of(tmp_path / "a", 0, 1, job=jobs[0])
    capture_of(tmp_path / "b", 2, 3, job=jobs[1])
    assert runs(load(tmp_path)) == {"a": ["rank0", "rank1"], "b": ["rank2", "rank3"]}
