"""What a part leaves behind stays within its limits."""

import io
import json
import os
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import smoke
from benchmarks.gpu.budget import Budget, OutOfTimeError
from benchmarks.gpu.experiment import Change
from benchmarks.gpu.outbox import MOST_FILE_BYTES, MOST_FILES, Limits, Outbox, OutboxFullError, files_of
from benchmarks.gpu.part import Part
from benchmarks.gpu.parts import run_part
from benchmarks.gpu.settings import Settings
from benchmarks.gpu.training import Training

SMALL = Limits(files=3, file_bytes=60_000)


def bundle(folder: Path, trace_bytes: int) -> Path:
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    (folder / "host_1.1.pt.trace.json.gz").write_bytes(os.urandom(trace_bytes))
    return folder


def document(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "part.json").read_text())
    return read


def test_the_limits_are_eight_files_of_sixteen_megabytes() -> None:
    assert (MOST_FILES, MOST_FILE_BYTES) == (8, 16 * 2**20)
    assert Limits() == Limits(8, 16 * 2**20)


def test_captures_share_archives_and_each_comes_back_whole(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "out", "part", {}, SMALL)
    for number in range(3):
        outbox.add_capture(f"capture-{number}", bundle(tmp_path / str(number), 18_000))
    rows = document(tmp_path / "out")["captures"]
    assert [row["archive"] for row in rows] == ["part-captures-1.tar", "part-captures-1.tar", "part-captures-2.tar"]
    with tarfile.open(tmp_path / "out" / "part-captures-2.tar") as outer:
        member = outer.extractfile("capture-2.tar.gz")
        assert member
        with tarfile.open(fileobj=io.BytesIO(member.read())) as inner:
            assert sorted(inner.getnames()) == ["capture-2/host_1.1.pt.trace.json.gz", "capture-2/manifest.json"]


def test_no_file_grows_beyond_its_limit_and_there_are_no_more_files_than_allowed(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "out", "part", {}, SMALL)
    for number in range(8):
        outbox.add_capture(f"capture-{number}", bundle(tmp_path / str(number), 18_000))
    files = list((tmp_path / "out").iterdir())
    assert len(files) <= SMALL.files
    assert all(path.stat().st_size <= SMALL.file_bytes for path in files)
    assert [row["left_out"] is None for row in document(tmp_path / "out")["captures"]] == [True] * 4 + [False] * 4


def test_a_capture_that_is_too_large_comes_without_its_traces_and_says_so(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "out", "part", {}, SMALL)
    outbox.add_capture("large", bundle(tmp_path / "large", 100_000))
    (row,) = document(tmp_path / "out")["captures"]
    assert row["archive"] == "part-captures-1.tar"
    assert row["left_out"].startswith("the traces: large.tar.gz has 100")


def test_results_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "out", "part", {}, SMALL)
    with pytest.raises(OutboxFullError, match="limit 60000"):
        outbox.put("rows", ["x" * 70_000])
    assert "rows" not in document(tmp_path / "out")


def test_every_result_is_written_at_once(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, "part", {"device": "GPU"})
    outbox.put("rows", [1])
    outbox.say("one row")
    assert {key: document(tmp_path)[key] for key in ("status", "rows", "lines")} == {
        "status": "running",
        "rows": [1],
        "lines": ["one row"],
    }


def test_files_of_an_earlier_run_go_and_those_of_other_parts_stay(tmp_path: Path) -> None:
    first, other = Outbox(tmp_path, "part", {}), Outbox(tmp_path, "other", {})
    first.add_capture("capture", bundle(tmp_path / "bundle", 100))
    other.add_capture("capture", tmp_path / "bundle")
    Outbox(tmp_path, "part", {})
    assert [path.name for path in files_of(tmp_path, "part")] == ["part.json"]
    assert [path.name for path in files_of(tmp_path, "other")] == ["other-captures-1.tar", "other.json"]


def test_a_stage_that_fails_is_named_and_does_not_stop_the_next(tmp_path: Path) -> None:
    part = Part(Outbox(tmp_path / "out", "part", {}), Budget(60), "cpu", reduced=True, scratch=tmp_path)
    done: list[str] = []
    part.attempt("first", lambda: done[0])
    part.attempt("second", lambda: done.append("second"))
    assert done == ["second"]
    assert part.failures == ["first: IndexError: list index out of range"]
    assert "first failed: IndexError: list index out of range" in document(tmp_path / "out")["lines"]


@pytest.mark.nightly("benchmarks/gpu")
def test_a_part_is_stopped_when_its_time_is_over_and_writes_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(part: Part) -> None:
        part.outbox.put("rows", [1])
        part.attempt("endless", lambda: time.sleep(60))

    monkeypatch.setattr(smoke, "run", endless)
    assert not run_part("smoke", tmp_path, reduced=True, minutes=0.26)
    read = json.loads((tmp_path / "smoke.json").read_text())
    assert (read["status"], read["rows"]) == ("partial", [1])
    assert read["error"].startswith("stopped after")


@pytest.mark.nightly("benchmarks/gpu")
def test_an_experiment_in_which_the_time_ends_is_written_with_its_whole_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[Settings] = []
    enter, step = Training.switch, Training.step

    def switch(training: Training, wanted: Settings) -> None:
        settings.append(wanted)
        enter(training, wanted)

    def stepped(training: Training) -> None:
        if len(settings) == 12:  # it was made and warmed up twice: the third round has all but its last block
            raise OutOfTimeError
        step(training)

    def measured(part: Part) -> None:
        change = Change("fused", "fused", Settings(fused=True), ())
        part.experiment("device", "text", Settings(), [change], part.budget, reports={})

    monkeypatch.setattr(Training, "switch", switch)
    monkeypatch.setattr(Training, "step", stepped)
    monkeypatch.setattr(smoke, "run", measured)
    assert not run_part("smoke", tmp_path, reduced=True, minutes=1.0)
    read = json.loads((tmp_path / "smoke.json").read_text())
    assert read["status"] == "partial"
    assert read["error"].startswith("stopped after")
    experiment = read["experiments"][0]
    assert [sorted(row) for row in experiment["rounds"]] == [["A", "A'", "fused"]] * 2
    assert experiment["arms"]["fused"]["comparison"]
