"""Captures of many ranks: bounded, and what ranks share is read once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.growth.bundles import capture
from traceadvisor.api import load
from traceadvisor.bundle import runs
from traceadvisor.bundle.folder import MOST_SILENT, find_in_bundle
from traceadvisor.bundle.runs import BundleRuns
from traceadvisor.model.limits import LIMITS, Limits
from traceadvisor.rendering.formats import FORMATS


def test_a_capture_may_have_2048_ranks() -> None:
    assert LIMITS.ranks == 2048


def test_ranks_beyond_the_limit_are_left_out_with_a_note(tmp_path: Path) -> None:
    folder = capture(tmp_path / "run", ranks=3)
    report = load(folder, limits=Limits(ranks=2), processes=1)
    assert [recording.worker for recording in report.recordings] == ["rank0", "rank1"]
    (note,) = [row.note for row in report.health_notes if row.note.code == "ranks-left-out"]
    assert note.message == (
        "run holds 3 ranks. The report covers the first 2. To read all of them, add --trusted, or raise ranks in "
        "[tool.traceadvisor.limits]."
    )


def test_all_ranks_within_the_limit_are_read_without_a_note(tmp_path: Path) -> None:
    origins, notes = find_in_bundle(capture(tmp_path / "run", ranks=3), most_ranks=3)
    assert ([origin.rank for origin in origins], notes) == ([0, 1, 2], [])


@pytest.mark.nightly("traceadvisor/bundle")
def test_of_ranks_without_a_recording_only_the_first_are_named(tmp_path: Path) -> None:
    folder = capture(tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    (ending,) = manifest["endings"][:1]
    manifest["endings"] = [ending | {"rank": rank} for rank in range(2000)]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    report = load(folder, processes=1)
    assert len(report.recordings) == 1 + MOST_SILENT
    assert len(FORMATS["json"].render(report)) < 6_000_000
    (note,) = [row.note for row in report.health_notes if row.note.code == "ranks-left-out"]
    assert note.message == "1,999 ranks of run have no recording. The report names the first 200."


def test_a_folder_name_that_is_cut_keeps_no_part_of_a_secret(tmp_path: Path) -> None:
    token = f"ghp_{'a1B2' * 9}"
    report = load(capture(tmp_path / f"{'x' * 60}-{token}", ranks=3), limits=Limits(ranks=2), processes=1)
    (note,) = [row.note for row in report.health_notes if row.note.code == "ranks-left-out"]
    assert note.message.startswith(f"{'x' * 60}-[redacted] holds 3 ranks.")


def _with_files(folder: Path, *files: tuple[str, int]) -> Path:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] += [{"path": path, "kind": "trace", "rank": rank} for path, rank in files]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_recording_listed_under_many_ranks_is_read_once(tmp_path: Path) -> None:
    folder = capture(tmp_path / "run")
    origins, (note,) = find_in_bundle(
        _with_files(folder, *(("node_0.1.pt.trace.json", rank) for rank in range(1, 1000)))
    )
    assert [origin.rank for origin in origins] == [0]
    assert "lists the recording node_0.1.pt.trace.json 1000 times" in note.message


def test_another_name_of_a_recording_is_the_same_recording(tmp_path: Path) -> None:
    folder = capture(tmp_path / "run")
    origins, notes = find_in_bundle(_with_files(folder, ("../run/node_0.1.pt.trace.json", 1)))
    assert [origin.rank for origin in origins] == [0]
    assert [note.code for note in notes] == ["recording-listed-twice"]


def test_several_recordings_listed_again_are_one_note(tmp_path: Path) -> None:
    folder = capture(tmp_path / "run", ranks=2)
    _, (note,) = find_in_bundle(_with_files(folder, ("node_0.1.pt.trace.json", 5), ("node_1.1.pt.trace.json", 6)))
    assert "lists 2 recordings, such as node_0.1.pt.trace.json, 4 times" in note.message


def _counted(name: str, original: Callable[[Path], Any], read: list[str]) -> Callable[[Path], Any]:
    def counted(path: Path) -> Any:
        read.append(name)
        return original(path)

    return counted


def test_what_ranks_share_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = capture(tmp_path / "run", ranks=4)
    read: list[str] = []
    for name in ("read_manifest", "read_telemetry", "read_steps"):
        monkeypatch.setattr(runs, name, _counted(name, getattr(runs, name), read))
    found = BundleRuns(folder)
    samples = {id(telemetry.node) for rank in range(4) if (telemetry := found.run(rank)[0].telemetry)}
    assert len(samples) == 1
    assert sorted(read) == ["read_manifest", *["read_steps"] * 4, "read_telemetry"]


def test_each_rank_gets_its_own_notes_and_those_of_all(tmp_path: Path) -> None:
    folder = capture(tmp_path / "run", ranks=2)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["notes"] = [
        {"code": "one", "message": "First.", "rank": 1},
        {"code": "all", "message": "For all."},
        {"code": "zero", "message": "Third.", "rank": 0},
    ]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    codes = [[note.code for note in BundleRuns(folder).run(rank)[1]] for rank in (0, 1)]
    assert codes == [["all", "zero"], ["one", "all"]]
